# What `cmake --install` leaves: programs, decks, documents, and a CMake package that tells other
# projects where the programs and decks are:
#   find_package(trireme)   gives the programs trireme::trireme (and trireme::trireme-cpu beside a CUDA
#                           build) and the folder trireme_INPUTS_DIR
# The libraries behind the programs are not installed: their interfaces are the project's own.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
set(inputs_dir ${CMAKE_INSTALL_DATADIR}/trireme/inputs)

install(DIRECTORY inputs/ DESTINATION ${inputs_dir} FILES_MATCHING PATTERN "*.ini")
install(DIRECTORY jobscripts DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE)
install(DIRECTORY doc DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET trireme)
  install(EXPORT trireme_programs FILE triremePrograms.cmake NAMESPACE trireme:: DESTINATION ${package_dir})
  configure_package_config_file(cmake/triremeConfig.cmake.in ${CMAKE_BINARY_DIR}/triremeConfig.cmake
    INSTALL_DESTINATION ${package_dir} PATH_VARS inputs_dir)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/triremeConfigVersion.cmake
    COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
  install(FILES ${CMAKE_BINARY_DIR}/triremeConfig.cmake ${CMAKE_BINARY_DIR}/triremeConfigVersion.cmake
    DESTINATION ${package_dir})
endif()
