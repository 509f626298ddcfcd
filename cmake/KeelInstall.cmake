# Defines what `cmake --install` installs: the program, plugins, configs and docs for users; headers
# and a CMake package for authors of plugins and of programs that use Keel as a library. Plugins
# install themselves (keel_add_plugin). All files are found relative to the program, so the
# installed tree may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET keel)
  install(TARGETS keel RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING PATTERN "*.yaml")
# the files in configs/ name the model as ../models/tiny
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/keel/models)
# The pages of docs/ and the files that they link, in the same folders as in the source tree.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/policies DESTINATION ${CMAKE_INSTALL_DATADIR}/keel FILES_MATCHING REGEX "/policies/[a-z0-9_]+/README.md$")
foreach(project backend policy policy_cpp)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/install/${project} DESTINATION ${CMAKE_INSTALL_DATADIR}/keel/tests/install)
endforeach()
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_DATADIR}/keel/core OUTPUT_VARIABLE keel_headers)
install(CODE "
  set(core \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/keel/core\")
  file(MAKE_DIRECTORY \"\${core}\")
  file(CREATE_LINK \"${keel_headers}\" \"\${core}/include\" SYMBOLIC)")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The SDK: headers, target keel::sdk, keel_add_plugin(), and the functions that test a plugin with the
# programs of sdk/.
set(keel_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/core/include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
set_target_properties(keel_sdk PROPERTIES EXPORT_NAME sdk)
install(TARGETS keel_sdk EXPORT keelTargets)
# libkeel: its header and the target keel::keel. Plugins are found next to the library.
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
