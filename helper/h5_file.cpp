#include "helper/h5_file.hpp"

#include <H5FDpublic.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "helper/confine.hpp"

namespace {

// The file that the driver reads, or creates; HDF5 gives its callbacks no other access to it.
Range opened;
int system_error = 0;  // of the read or the write that failed

struct File {
  H5FD_t base;  // first: HDF5 uses the address of this as that of the whole
  haddr_t allocated;
};

File* mine(H5FD_t* file) {
  return reinterpret_cast<File*>(file);
}

H5FD_t* open_file(const char*, unsigned, hid_t, haddr_t) {
  auto* file = static_cast<File*>(std::calloc(1, sizeof(File)));
  return file == nullptr ? nullptr : &file->base;
}

herr_t close_file(H5FD_t* file) {
  std::free(mine(file));
  return 0;
}

herr_t features(const H5FD_t*, unsigned long* flags) {
  *flags = 0;
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const File*>(file)->allocated;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  mine(file)->allocated = address;
  return 0;
}

haddr_t end_of_file(const H5FD_t*, H5FD_mem_t) {
  return opened.bytes;
}

/// Moves all bytes by pread or pwrite.
template <class Move, class Byte>
herr_t move_all(Move move, std::uint64_t offset, size_t bytes, Byte* at) {
  while (bytes > 0) {
    const ssize_t count = move(opened.descriptor, at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_error = errno;
    if (count <= 0) return -1;
    at += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
  return 0;
}

herr_t read_range(H5FD_t*, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, void* out) {
  if (address > opened.bytes || bytes > opened.bytes - address) return -1;
  return move_all(::pread, opened.offset + address, bytes, static_cast<char*>(out));
}

herr_t write_nothing(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) {
  return -1;
}

// --- of a file that is made ------------------------------------------------------------------------------------------

/// As those of HDF5's own driver, for the same places in the file; but not that the file has a name.
herr_t features_of_made(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

/// Bytes never written are zero.
herr_t read_made(H5FD_t* file, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t bytes, void* out) {
  const haddr_t end = std::max(address, std::min<haddr_t>(opened.bytes, address + bytes));
  const auto written = static_cast<size_t>(end - address);
  std::memset(static_cast<char*>(out) + written, 0, bytes - written);
  return written == 0 ? 0 : read_range(file, type, transfer, address, written, out);
}

herr_t write_made(H5FD_t*, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, const void* data) {
  if (move_all(::pwrite, address, bytes, static_cast<const char*>(data)) != 0) return -1;
  opened.bytes = std::max<std::uint64_t>(opened.bytes, address + bytes);
  return 0;
}

herr_t end_where_allocated(H5FD_t* file, hid_t, hbool_t) {
  const haddr_t end = mine(file)->allocated;
  if (::ftruncate(opened.descriptor, static_cast<off_t>(end)) != 0) {
    system_error = errno;
    return -1;
  }
  opened.bytes = end;
  return 0;
}

H5FD_class_t driver_named(const char* name) {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(600);
#endif
  driver.name = name;
  driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.open = open_file;
  driver.close = close_file;
  driver.get_eoa = allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = end_of_file;
  return driver;
}

void set_driver(hid_t access, const H5FD_class_t& driver) {
  const hid_t registered = H5FDregister(&driver);
  const bool ready =
      H5PLset_loading_state(0) >= 0 && registered >= 0 && H5Pset_driver(access, registered, nullptr) >= 0;
  if (!ready) stop("HDF5: the driver cannot be set up");
}

}  // namespace

void stop(const std::string& reason, Verdict verdict) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::_Exit(static_cast<int>(verdict));
}

Verdict verdict_of(int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return Verdict::no_space;
  return error == ENOMEM ? Verdict::memory : Verdict::io;
}

void stop_at(const std::string& path, const std::string& what) {
  struct Cause {
    bool newer = false;
    bool memory = false;
    int system = system_error;
  } cause;
  const auto look = [](unsigned, const H5E_error2_t* error, void* found) -> herr_t {
    auto& out = *static_cast<Cause*>(found);
    const std::string_view text = error->desc == nullptr ? "" : error->desc;
    out.newer |= error->min_num == H5E_VERSION || text.find("bad version number") != text.npos;
    out.memory |= error->maj_num == H5E_RESOURCE && (error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC);
    constexpr std::string_view number = "errno = ";  // H5FD_sec2_read, _write and _open
    if (const std::size_t at = text.find(number); at != text.npos && out.system == 0)
      out.system = static_cast<int>(std::strtol(text.data() + at + number.size(), nullptr, 10));
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look, &cause);
  const std::string said = path + ": HDF5: " + what;
  if (cause.system != 0) stop(said + ": " + std::strerror(cause.system), verdict_of(cause.system));
  if (cause.memory) stop_without_memory(said);
  if (!cause.newer) stop(said);
  stop(said + ": a version that HDF5 " + std::to_string(H5_VERS_MAJOR) + "." + std::to_string(H5_VERS_MINOR) +
           " does not support",
       Verdict::unsupported);
}

void stop_without_memory(const std::string& said) {
  stop(said + ": needs more memory than its limit of " + std::to_string(usable_memory() >> 20) + " MiB",
       Verdict::memory);
}

hid_t open_range(const Range& range) {
  opened = range;
  static H5FD_class_t driver = driver_named("range");
  driver.query = features;
  driver.read = read_range;
  driver.write = write_nothing;
  const H5FD_mem_t one_list[] = H5FD_FLMAP_SINGLE;
  std::copy(std::begin(one_list), std::end(one_list), driver.fl_map);
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  set_driver(access, driver);
  const hid_t file = H5Fopen("range", H5F_ACC_RDONLY, access);
  if (file < 0) stop_at("the file", "not a whole HDF5 file");
  return file;
}

hid_t make_file(int descriptor, hid_t create, hid_t access) {
  opened = {.descriptor = descriptor};
  static H5FD_class_t driver = driver_named("made");
  driver.query = features_of_made;
  driver.read = read_made;
  driver.write = write_made;
  driver.truncate = end_where_allocated;
  const H5FD_mem_t lists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(lists), std::end(lists), driver.fl_map);
  set_driver(access, driver);
  return H5Fcreate("made", H5F_ACC_TRUNC, create, access);
}
