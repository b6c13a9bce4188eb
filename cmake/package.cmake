# What other projects build against: libckpt.so, the headers of include/ckpt, find_package(ckpt), pkg-config's ckpt.
# Components: `library` is what a program needs to run, `development` what it needs to be built.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)
install(TARGETS ckpt_shared EXPORT ckpt
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT ckpt NAMESPACE ckpt:: FILE ckpt-targets.cmake DESTINATION ${package_dir} COMPONENT development)

configure_package_config_file(cmake/ckpt-config.cmake.in ${PROJECT_BINARY_DIR}/ckpt-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ckpt-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ckpt-config.cmake ${PROJECT_BINARY_DIR}/ckpt-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

# The prefix follows from where ckpt.pc lies, so that the tree can be moved.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
configure_file(cmake/ckpt.pc.in ${PROJECT_BINARY_DIR}/ckpt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ckpt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

install(FILES LICENSE src/format/FORMAT.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
