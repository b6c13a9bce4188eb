# CKPT_PORTABLE: what `./package wheel` and `./package tarball` build. The objects are those of any build; they are linked
# against the glibc in that directory (packaging/glibc.sh), with every library but glibc and MPI's. Those that Debian has as
# shared libraries only are installed in lib/ckpt: ISA-L, and xxHash with its choice of instructions at run time.
set(private_dir ${CMAKE_INSTALL_LIBDIR}/ckpt)

# ckpt_portable(TARGET RPATH): RPATH is where it finds lib/ckpt from the directory that it is installed in.
function(ckpt_portable target rpath)
  if(NOT TARGET ${target})
    return()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ckpt_glibc>)
  # glibc 2.31 has libpthread and libdl apart, and libstdc++ refers to threads weakly.
  target_link_options(${target} PRIVATE --sysroot=${CKPT_PORTABLE} -B${CKPT_PORTABLE}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/ -static-libstdc++ -static-libgcc
    -Wl,--no-as-needed,-lpthread,-ldl,--as-needed)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}" LINK_DEPENDS $<TARGET_OBJECTS:ckpt_glibc>)
endfunction()
ckpt_portable(ckpt "$ORIGIN/../${private_dir}")
ckpt_portable(ckpt_shared "$ORIGIN/ckpt")
ckpt_portable(ckpt_mpi "")
ckpt_portable(ckpt-h5 "$ORIGIN/../../${private_dir}")

foreach(name isal xxhash)
  list(GET ${name}_LINK_LIBRARIES 0 linked)
  file(REAL_PATH ${linked} library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "SONAME +([^\n]+)" soname "${headers}")
  install(FILES ${library} DESTINATION ${private_dir} RENAME ${CMAKE_MATCH_1} COMPONENT library)
endforeach()

# The licences of what is inside.
foreach(package libaec0 libcli11-dev libexpected-dev libfmt-dev libhdf5-dev libisal2 libsqlite3-dev libsqlitecpp-dev libstdc++6
        libtomlplusplus-dev liburing-dev libxxhash0 libyaml-dev libzstd-dev nlohmann-json3-dev zlib1g)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${package})
endforeach()
