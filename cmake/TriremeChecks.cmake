# Floor versions, checked in words, and the outside libraries as targets.
set(floor_gcc 11.3)
set(floor_clang 15)  # the first that knows std::source_location of libstdc++
set(floor_mpi 3.1)
set(floor_hdf5 1.10.7)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS ${floor_gcc})
  message(FATAL_ERROR "Trireme needs g++ ${floor_gcc} or newer; this is ${CMAKE_CXX_COMPILER_VERSION}. "
                      "Set CXX to a newer compiler.")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS ${floor_clang})
  message(FATAL_ERROR "Trireme needs clang ${floor_clang} or newer; this is ${CMAKE_CXX_COMPILER_VERSION}. "
                      "Set CXX to a newer compiler.")
endif()

set(HDF5_PREFER_PARALLEL ON)
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface only: the C++ one left the standard in 2012
find_package(MPI COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(FATAL_ERROR "No MPI was found. Install Open MPI (Debian: libopenmpi-dev) and configure again.")
endif()
if(MPI_CXX_VERSION VERSION_LESS ${floor_mpi})
  message(FATAL_ERROR "Trireme needs MPI standard ${floor_mpi} or newer; this one says ${MPI_CXX_VERSION}.")
endif()
enable_language(C)
find_package(HDF5 COMPONENTS C)
if(NOT HDF5_FOUND OR NOT HDF5_IS_PARALLEL)
  message(FATAL_ERROR "No parallel HDF5 was found. Install it (Debian: libhdf5-openmpi-dev) or set HDF5_ROOT.")
endif()
if(HDF5_VERSION VERSION_LESS ${floor_hdf5})
  message(FATAL_ERROR "Trireme needs HDF5 ${floor_hdf5} or newer; this is ${HDF5_VERSION}.")
endif()
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(Boost 1.71 REQUIRED COMPONENTS program_options)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.7 REQUIRED)
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-openmp x86_64-linux-gnu/openblas-openmp
          x86_64-linux-gnu aarch64-linux-gnu)
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp x86_64-linux-gnu/openblas-openmp)
if(NOT OPENBLAS_LIBRARY OR NOT OPENBLAS_INCLUDE_DIR)
  message(FATAL_ERROR "No OpenBLAS was found. Install its OpenMP build (Debian: libopenblas-openmp-dev).")
endif()
message(STATUS "MPI ${MPI_CXX_VERSION} (${MPI_CXX_COMPILER}), HDF5 ${HDF5_VERSION}, OpenBLAS ${OPENBLAS_LIBRARY}")
