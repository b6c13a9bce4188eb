# One interface target carries every flag; every target of the project links it.
add_library(ckpt_flags INTERFACE)
add_library(ckpt::flags ALIAS ckpt_flags)
target_compile_options(ckpt_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough -Wno-missing-field-initializers)
# Errors with the compilers that check runs; another one may know warnings that nobody here has seen.
if(CMAKE_CXX_COMPILER_VERSION MATCHES "^1[24]\\.")
  set(tested_compiler ON)
else()
  set(tested_compiler OFF)
endif()
option(CKPT_WERROR "Warnings are errors" ${tested_compiler})
if(CKPT_WERROR)
  target_compile_options(ckpt_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # With optimisation only, it finds overlapping copies in std::string operator+ (GCC bug 105651) and unset strings in a
  # std::variant that is moved, where none are.
  target_compile_options(ckpt_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  target_compile_options(ckpt_flags INTERFACE -Wno-subobject-linkage)  # a source that another one includes is no header
endif()
target_include_directories(ckpt_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(CKPT_SANITIZE)
  target_compile_options(ckpt_flags INTERFACE -fsanitize=${CKPT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ckpt_flags INTERFACE -fsanitize=${CKPT_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # what g++ defines itself
    string(REGEX MATCH "address|thread" sanitizer "${CKPT_SANITIZE}")
    string(TOUPPER "${sanitizer}" sanitizer)
    target_compile_definitions(ckpt_flags INTERFACE __SANITIZE_${sanitizer}__)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # links a test program with debug information in a quarter of the time
  find_program(CKPT_LLD ld.lld-14)
  if(CKPT_LLD)
    target_link_options(ckpt_flags INTERFACE -fuse-ld=lld-14 -Wl,--build-id=sha1)
  endif()
endif()
if(CKPT_FUZZ)
  target_compile_options(ckpt_flags INTERFACE -fsanitize=fuzzer-no-link)  # coverage; each target links -fsanitize=fuzzer
endif()
