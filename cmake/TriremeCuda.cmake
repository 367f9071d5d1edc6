# CUDA: whether it is built, for which GPUs, and the vendor's libraries as targets.
#   TRIREME_CUDA               ON where the CUDA twins are built
#   trireme_cuda_runtime       CUDA runtime
#   trireme_cuda_math          cuBLASLt, and cuDNN with its front end where both are there
#   trireme_nccl               NCCL
#   TRIREME_CUDNN              ON where the fused attention of cuDNN is built
set(TRIREME_CUDA OFF)
set(TRIREME_CUDNN OFF)
set(TRIREME_CUDA_ARCHITECTURES "80-virtual;90-real;100-real" CACHE STRING
    "GPU architectures; those that the compiler does not know are left out")
option(TRIREME_USE_CUDNN "use cuDNN's fused attention where cuDNN is found" ON)
set(CUDNN_FRONTEND_INCLUDE_DIR "" CACHE PATH "folder that holds cudnn_frontend.h; empty: fetch it")
# Later ones than 1.16 also want the run-time compiler (NVRTC), for operations that are not used here.
set(cudnn_frontend_version 1.16.0)

if(TRIREME_BACKEND STREQUAL "cpu")
  return()
endif()
if(NOT TRIREME_BACKEND MATCHES "^(auto|cuda)$")
  message(FATAL_ERROR "TRIREME_BACKEND is '${TRIREME_BACKEND}'; use auto, cpu or cuda.")
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(TRIREME_BACKEND STREQUAL "cuda")
    message(FATAL_ERROR "TRIREME_BACKEND is cuda but nvcc was not found. Put it on PATH or set CUDACXX.")
  endif()
  message(STATUS "CPU build only: nvcc was not found")
  return()
endif()

execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known_architectures
                RESULT_VARIABLE status ERROR_QUIET)
set(architectures "")
foreach(architecture ${TRIREME_CUDA_ARCHITECTURES})
  string(REGEX MATCH "^[0-9]+" number "${architecture}")
  if(NOT status EQUAL 0 OR known_architectures MATCHES "compute_${number}(\n|$)")
    list(APPEND architectures ${architecture})
  else()
    message(STATUS "GPU architecture ${architecture} left out: ${CMAKE_CUDA_COMPILER} does not know it")
  endif()
endforeach()
if(NOT architectures)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} knows none of TRIREME_CUDA_ARCHITECTURES=${TRIREME_CUDA_ARCHITECTURES}.")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${architectures})
enable_language(CUDA)
# CMake before 3.26 does not know nvcc's flag for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "Trireme needs CUDA 12.0 or newer; nvcc is ${CMAKE_CUDA_COMPILER_VERSION}.")
endif()
find_package(CUDAToolkit REQUIRED)
set(TRIREME_CUDA ON)

add_library(trireme_cuda_runtime INTERFACE)
target_link_libraries(trireme_cuda_runtime INTERFACE CUDA::cudart)
add_library(trireme_cuda_math INTERFACE)
target_link_libraries(trireme_cuda_math INTERFACE CUDA::cublasLt)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  message(FATAL_ERROR "No NCCL was found. Install it (Debian: libnccl-dev), or set NCCL_INCLUDE_DIR and "
                      "NCCL_LIBRARY, or build with TRIREME_BACKEND=cpu.")
endif()
add_library(trireme_nccl INTERFACE)
target_include_directories(trireme_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
target_link_libraries(trireme_nccl INTERFACE ${NCCL_LIBRARY})

# Sets cudnn_frontend_dir to the folder of the front end's headers, or to "" with the reason in
# cudnn_missing. The headers are taken from the vendor's Python package where no folder is named.
function(trireme_find_cudnn_frontend)
  find_path(found cudnn_frontend.h NO_CACHE HINTS ${CUDNN_FRONTEND_INCLUDE_DIR}
            ${CMAKE_SOURCE_DIR}/third_party/cudnn-frontend/include
            ${CMAKE_BINARY_DIR}/third_party/cudnn-frontend/include)
  if(NOT found)
    set(folder ${CMAKE_BINARY_DIR}/third_party/cudnn-frontend)
    find_package(Python3 COMPONENTS Interpreter)
    if(Python3_FOUND)
      execute_process(COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --no-deps --only-binary=:all:
                              -d ${folder} nvidia-cudnn-frontend==${cudnn_frontend_version}
                      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    endif()
    file(GLOB wheel ${folder}/nvidia_cudnn_frontend-*.whl)
    if(wheel)
      list(GET wheel 0 wheel)
      file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${folder} PATTERNS "include/*")
      file(REMOVE ${wheel})
      find_path(found cudnn_frontend.h NO_CACHE HINTS ${folder}/include)
    endif()
  endif()
  if(NOT found)
    set(cudnn_missing "cudnn_frontend.h was not found and could not be fetched with pip; set CUDNN_FRONTEND_INCLUDE_DIR"
        PARENT_SCOPE)
    set(found "")
  endif()
  set(cudnn_frontend_dir ${found} PARENT_SCOPE)
endfunction()

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
set(cudnn_missing "")
if(NOT TRIREME_USE_CUDNN)
  set(cudnn_missing "TRIREME_USE_CUDNN is off")
elseif(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  set(cudnn_missing "cuDNN 9 was not found; set CUDNN_INCLUDE_DIR and CUDNN_LIBRARY")
else()
  trireme_find_cudnn_frontend()
endif()
if(cudnn_missing)
  message(STATUS "Attention without cuDNN (slower): ${cudnn_missing}")
else()
  set(TRIREME_CUDNN ON)
  target_include_directories(trireme_cuda_math SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR} ${cudnn_frontend_dir})
  target_link_libraries(trireme_cuda_math INTERFACE ${CUDNN_LIBRARY})
  target_compile_definitions(trireme_cuda_math INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
endif()
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, NCCL ${NCCL_LIBRARY}, "
               "cuDNN attention ${TRIREME_CUDNN}")
