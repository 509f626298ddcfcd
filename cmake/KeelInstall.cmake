# Defines the files that `cmake --install` installs. For users: the program, plugins, configs and
# docs. For authors of plugins, and of programs that use Keel as a library: headers and a CMake
# package. keel_add_plugin installs each plugin. The program finds all files by paths relative to
# itself, so the installed folder may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET keel)
  install(TARGETS keel RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING PATTERN "*.yaml")
# The files in configs/ refer to the model as ../models/tiny, so the model is installed there.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/keel/models)
# The pages of docs/ and the files that they link to, in the same folders as in the source tree.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/policies DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING REGEX "/policies/[a-z0-9_]+/README.md$")
foreach(project backend policy policy_cpp)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/install/${project} DESTINATION ${CMAKE_INSTALL_DATADIR}/keel/tests/install)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/attention DESTINATION ${CMAKE_INSTALL_DATADIR}/keel/examples)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_DATADIR}/keel/core OUTPUT_VARIABLE keel_headers)
install(CODE "
  set(core \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/keel/core\")
  file(MAKE_DIRECTORY \"\${core}\")
  file(CREATE_LINK \"${keel_headers}\" \"\${core}/include\" SYMBOLIC)")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The SDK for plugin authors: headers, the target keel::sdk, the function keel_add_plugin(), and the
# functions that test a plugin with the programs of sdk/.
set(keel_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/core/include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "README.md")
set_target_properties(keel_sdk PROPERTIES EXPORT_NAME sdk)
install(TARGETS keel_sdk EXPORT keelTargets)
# libkeel: its header and the target keel::keel. The library finds plugins next to itself.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/api/include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS keel_api EXPORT keelTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT keelTargets NAMESPACE keel:: DESTINATION ${keel_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/keelConfig.cmake.in ${PROJECT_BINARY_DIR}/keelConfig.cmake
  INSTALL_DESTINATION ${keel_package_dir})
# While the major version is 0, each minor version may change the ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/keelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/keelConfig.cmake ${PROJECT_BINARY_DIR}/keelConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/KeelPlugin.cmake ${PROJECT_SOURCE_DIR}/cmake/KeelPluginTests.cmake
    ${PROJECT_SOURCE_DIR}/cmake/keel_plugin.version
  DESTINATION ${keel_package_dir})
