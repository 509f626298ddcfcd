# Cross-compiles for ARM64 Linux with Debian's g++-aarch64-linux-gnu. The libraries come from
# scripts/aarch64-sysroot.sh. If qemu-user is installed, CMake runs the built programs with it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(DEFINED ENV{KEEL_AARCH64_SYSROOT})
  set(sysroot $ENV{KEEL_AARCH64_SYSROOT})
else()
  get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot ABSOLUTE)
endif()
if(NOT EXISTS ${sysroot}/complete)
  message(FATAL_ERROR "There is no sysroot in ${sysroot}: run scripts/aarch64-sysroot.sh, or set KEEL_AARCH64_SYSROOT to one that it made.")
endif()

# The C and C++ libraries come from the cross compiler's packages, all other libraries from the
# sysroot. Programs that the build runs come from this machine.
set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${sysroot}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})
set(libraries ${sysroot}/usr/lib/aarch64-linux-gnu:${sysroot}/lib/aarch64-linux-gnu)
foreach(kind EXE SHARED MODULE)
  # The linker needs this path to find libraries that other libraries depend on.
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}")
endforeach()

find_program(KEEL_QEMU_AARCH64 qemu-aarch64)
if(KEEL_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR
    ${KEEL_QEMU_AARCH64};-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${libraries}:/usr/aarch64-linux-gnu/lib)
endif()
