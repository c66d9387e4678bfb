# Finds LibTorch and makes one imported target of its folders: leaklab_torch.
#
# Looked for in this order: LIBTORCH and CMAKE_PREFIX_PATH (a libtorch folder or a site-packages/torch,
# as CMake or environment variables), the torch of the active Python, the cache that ci/setup.sh
# fills. LibTorch's own CMake package is not used: that of a CUDA wheel needs nvcc, and its folders
# alone are enough to compile and link.

set(LEAKLAB_TORCH_PINNED 2.11.0)
set(LEAKLAB_TORCH_MINIMUM 2.9.0)

function(_leaklab_torch_version root out)
  set(header "${root}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}")
    set(header "${root}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" parts "${lines}")
  list(JOIN parts "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

function(_leaklab_torch_root candidate out)
  # As they are; a site-packages; what torch.utils.cmake_prefix_path says; its folder Torch.
  foreach(suffix "" "/torch" "/../.." "/../../..")
    if(EXISTS "${candidate}${suffix}/include/torch/csrc/api/include/torch/torch.h")
      file(REAL_PATH "${candidate}${suffix}" root)
      set(${out} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} "" PARENT_SCOPE)
endfunction()

set(_candidates ${LIBTORCH} $ENV{LIBTORCH} ${CMAKE_PREFIX_PATH})
string(REPLACE ":" ";" _env_prefix "$ENV{CMAKE_PREFIX_PATH}")
list(APPEND _candidates ${_env_prefix})
set(_root "")
foreach(candidate IN LISTS _candidates)
  _leaklab_torch_root("${candidate}" _root)
  if(_root)
    break()
  endif()
endforeach()
if(_root)
  # One that is named wins over the one that an earlier configuration has found.
  set(LEAKLAB_TORCH_ROOT "${_root}" CACHE PATH "Folder of LibTorch: include/ and lib/ lie in it" FORCE)
elseif(NOT DEFINED CACHE{LEAKLAB_TORCH_ROOT} OR NOT EXISTS "${LEAKLAB_TORCH_ROOT}/include")
  find_program(_python NAMES python3 python NO_CACHE)
  if(_python)
    # find_spec does not import torch, which takes seconds.
    execute_process(
      COMMAND ${_python} -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_found)
      _leaklab_torch_root("${_found}" _root)
    endif()
    # Nobody named it, so one that is too old is passed over.
    if(_root)
      _leaklab_torch_version("${_root}" _version)
      if(_version VERSION_LESS LEAKLAB_TORCH_MINIMUM)
        message(STATUS "LibTorch ${_version} in ${_root} is too old and is not used")
        set(_root "")
      endif()
    endif()
  endif()
  if(NOT _root)
    if(DEFINED ENV{XDG_CACHE_HOME})
      set(_cache "$ENV{XDG_CACHE_HOME}")
    else()
      set(_cache "$ENV{HOME}/.cache")
    endif()
    _leaklab_torch_root("${_cache}/leaklab/libtorch-${LEAKLAB_TORCH_PINNED}-cu13" _root)
  endif()
  if(NOT _root)
    message(FATAL_ERROR "LibTorch was not found in LIBTORCH, CMAKE_PREFIX_PATH, the active Python "
                        "or the cache. Run ci/setup.sh, which installs LibTorch "
                        "${LEAKLAB_TORCH_PINNED}, or configure with -DLEAKLAB_TORCH=OFF.")
  endif()
  set(LEAKLAB_TORCH_ROOT "${_root}" CACHE PATH "Folder of LibTorch: include/ and lib/ lie in it")
endif()
set(_root "${LEAKLAB_TORCH_ROOT}")

_leaklab_torch_version("${_root}" LEAKLAB_TORCH_VERSION)
if(LEAKLAB_TORCH_VERSION VERSION_LESS LEAKLAB_TORCH_MINIMUM)
  message(FATAL_ERROR "LibTorch in ${_root} is ${LEAKLAB_TORCH_VERSION}; leaklab needs "
                      "${LEAKLAB_TORCH_MINIMUM} or newer. Point LIBTORCH at a newer one, or "
                      "run ci/setup.sh, which installs ${LEAKLAB_TORCH_PINNED}.")
endif()

set(_has_cuda OFF)
if(EXISTS "${_root}/lib/libtorch_cuda.so")
  set(_has_cuda ON)
endif()
if(LEAKLAB_CUDA STREQUAL "ON" AND NOT _has_cuda)
  message(FATAL_ERROR "LEAKLAB_CUDA is ON, but LibTorch in ${_root} was built without CUDA. "
                      "Point LIBTORCH at one with CUDA, or use the preset release or cpu-only.")
endif()
if(LEAKLAB_CUDA STREQUAL "AUTO")
  set(LEAKLAB_WITH_CUDA ${_has_cuda})
elseif(LEAKLAB_CUDA)
  set(LEAKLAB_WITH_CUDA ON)
else()
  set(LEAKLAB_WITH_CUDA OFF)
endif()

add_library(leaklab_torch INTERFACE)
target_include_directories(leaklab_torch SYSTEM
                           INTERFACE "${_root}/include" "${_root}/include/torch/csrc/api/include")
target_compile_definitions(leaklab_torch INTERFACE USE_DISTRIBUTED USE_C10D)
# libtorch_cpu of a CUDA wheel needs CUDA libraries that lie in folders of their own and are found
# by its own run path.
target_link_options(leaklab_torch INTERFACE LINKER:--allow-shlib-undefined)
target_link_libraries(leaklab_torch INTERFACE "${_root}/lib/libtorch_cpu.so" "${_root}/lib/libc10.so")

if(LEAKLAB_WITH_CUDA)
  # Headers and libraries of CUDA: the wheels beside torch, one folder for all of a CUDA release or
  # (before CUDA 13) one a library; a CUDA Toolkit where there is one.
  get_filename_component(_site "${_root}" DIRECTORY)
  file(GLOB _wheel_folders "${_site}/nvidia/cu[0-9]*" "${_site}/nvidia/cuda_runtime"
       "${_site}/nvidia/cuda_cupti" "${_site}/nvidia/cublas" "${_site}/nvidia/cusparse"
       "${_site}/nvidia/cusolver" "${_site}/nvidia/nccl" "${_site}/nvidia/cudnn")
  set(_cuda_folders ${_wheel_folders})
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION}: ${CUDAToolkit_LIBRARY_ROOT}")
  endif()
  set(_cuda_includes "")
  set(_cuda_lib_folders "")
  foreach(folder IN LISTS _cuda_folders)
    list(APPEND _cuda_includes "${folder}/include")
    list(APPEND _cuda_lib_folders "${folder}/lib")
  endforeach()
  # After the wheels': what LibTorch was built with wins over what the machine has.
  list(APPEND _cuda_includes ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND _cuda_lib_folders ${CUDAToolkit_LIBRARY_DIR})
  find_path(_cuda_runtime_h cuda_runtime_api.h PATHS ${_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  if(NOT _cuda_runtime_h)
    message(FATAL_ERROR "LibTorch in ${_root} has CUDA, but cuda_runtime_api.h lies neither in the "
                        "wheels beside it nor in a CUDA Toolkit. Install the nvidia wheels of this "
                        "torch or a CUDA Toolkit, or configure with -DLEAKLAB_CUDA=OFF.")
  endif()
  find_path(_crt crt/host_defines.h PATHS ${_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  if(NOT _crt)
    message(FATAL_ERROR "The CUDA headers in ${_cuda_runtime_h} need crt/host_defines.h, which lies "
                        "neither beside them nor in a CUDA Toolkit. Install the wheel nvidia-cuda-crt "
                        "of that CUDA beside this torch, or configure with -DLEAKLAB_CUDA=OFF.")
  endif()
  function(_leaklab_cuda_library out)
    file(GLOB found "")
    foreach(folder IN LISTS _cuda_lib_folders)
      foreach(name IN LISTS ARGN)
        file(GLOB matches "${folder}/lib${name}.so" "${folder}/lib${name}.so.[0-9]*")
        list(APPEND found ${matches})
      endforeach()
    endforeach()
    if(found)
      list(GET found 0 first)
      set(${out} "${first}" PARENT_SCOPE)
    else()
      set(${out} "" PARENT_SCOPE)
    endif()
  endfunction()
  _leaklab_cuda_library(_cudart cudart)
  _leaklab_cuda_library(_cupti cupti)
  find_path(_cupti_h cupti.h PATHS ${_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  find_path(_nccl_h nccl.h PATHS ${_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  set(LEAKLAB_WITH_CUPTI OFF)
  if(_cupti AND _cupti_h)
    set(LEAKLAB_WITH_CUPTI ON)
  endif()
  set(LEAKLAB_WITH_NCCL OFF)
  if(_nccl_h)
    set(LEAKLAB_WITH_NCCL ON)
  endif()

  add_library(leaklab_torch_cuda INTERFACE)
  target_include_directories(leaklab_torch_cuda SYSTEM INTERFACE ${_cuda_includes})
  target_compile_definitions(leaklab_torch_cuda INTERFACE LEAKLAB_WITH_CUDA)
  if(LEAKLAB_WITH_NCCL)
    target_compile_definitions(leaklab_torch_cuda INTERFACE USE_C10D_NCCL)
  endif()
  if(LEAKLAB_WITH_CUPTI)
    target_compile_definitions(leaklab_torch_cuda INTERFACE LEAKLAB_WITH_CUPTI)
    target_link_libraries(leaklab_torch_cuda INTERFACE "${_cupti}")
  endif()
  # libtorch_cuda registers itself when it is loaded; nothing refers to it by name.
  target_link_libraries(
    leaklab_torch_cuda
    INTERFACE leaklab_torch "-Wl,--push-state,--no-as-needed" "${_root}/lib/libtorch_cuda.so"
              "${_root}/lib/libc10_cuda.so" "${_root}/lib/libtorch.so" "-Wl,--pop-state" "${_cudart}")
endif()

message(STATUS "LibTorch ${LEAKLAB_TORCH_VERSION} in ${_root}, CUDA ${LEAKLAB_WITH_CUDA}")
