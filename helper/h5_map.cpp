#include "helper/h5_map.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "format/little_endian.hpp"
#include "helper/h5_filters.hpp"
#include "helper/h5_type.hpp"

namespace {

constexpr std::size_t kMostObjects = 1u << 20;
constexpr std::size_t kMostNameBytes = std::size_t{256} << 20;
constexpr std::size_t kMostAttributeBytes = 64u << 10;
constexpr std::size_t kMostAttributes = 10'000;

void put(std::string& out, const std::string& text) {
  ckpt::append_little_endian(out, text.size(), 4);
  out += text;
}

void put(std::string& out, const std::vector<std::pair<std::string, std::string>>& pairs) {
  ckpt::append_little_endian(out, pairs.size(), 4);
  for (const auto& [name, value] : pairs) {
    put(out, name);
    put(out, value);
  }
}

void say(const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, bytes.data() + at, bytes.size() - at);
    if (written <= 0) stop("cannot answer", Verdict::io);
    at += static_cast<std::size_t>(written);
  }
}

// --- attributes ------------------------------------------------------------------------------------------------------

/// The value of a scalar attribute as text; empty and false for any other.
bool attribute_text(hid_t attribute, std::string& out) {
  const hid_t space = H5Aget_space(attribute);
  const hid_t type = H5Aget_type(attribute);
  const bool scalar = H5Sget_simple_extent_npoints(space) == 1 && H5Tget_size(type) <= kMostAttributeBytes;
  bool read = false;
  char number[64];
  if (scalar && H5Tget_class(type) == H5T_INTEGER) {
    long long value = 0;
    read = H5Aread(attribute, H5T_NATIVE_LLONG, &value) >= 0;
    std::snprintf(number, sizeof number, "%lld", value);
    out = number;
  } else if (scalar && H5Tget_class(type) == H5T_FLOAT) {
    double value = 0;
    read = H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0;
    std::snprintf(number, sizeof number, "%.17g", value);
    out = number;
  } else if (scalar && H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    const hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_size(memory, H5T_VARIABLE);
    H5Tset_cset(memory, H5Tget_cset(type));
    read = H5Aread(attribute, memory, &text) >= 0 && text != nullptr &&
           ::strnlen(text, kMostAttributeBytes + 1) <= kMostAttributeBytes;
    if (read) out = text;
    H5free_memory(text);
    H5Tclose(memory);
  } else if (scalar && H5Tget_class(type) == H5T_STRING) {
    std::vector<char> bytes(H5Tget_size(type) + 1, '\0');
    read = H5Aread(attribute, type, bytes.data()) >= 0;
    out = bytes.data();
    if (H5Tget_strpad(type) == H5T_STR_NULLPAD) {  // which alone may hold a NUL
      out.assign(bytes.begin(), bytes.end());
      out.erase(out.find_last_not_of('\0') + 1);
    }
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) out.erase(out.find_last_not_of(' ') + 1);
  }
  H5Tclose(type);
  H5Sclose(space);
  return read;
}

std::vector<std::pair<std::string, std::string>> attributes_of(hid_t object, const char* prefix) {
  std::vector<std::pair<std::string, std::string>> out;
  H5O_info_t info;
  if (H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS) < 0) return out;
  const hsize_t count = std::min<hsize_t>(info.num_attrs, kMostAttributes);
  for (hsize_t i = 0; i < count; ++i) {
    const hid_t attribute = H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0) continue;
    char name[1024];
    std::string value;
    const ssize_t length = H5Aget_name(attribute, sizeof name, name);
    const bool wanted = length > 0 && static_cast<std::size_t>(length) < sizeof name &&
                        std::strncmp(name, prefix, std::strlen(prefix)) == 0;
    if (wanted && attribute_text(attribute, value)) out.emplace_back(name, value);
    H5Aclose(attribute);
  }
  return out;
}

// --- the tree --------------------------------------------------------------------------------------------------------

struct Link {
  std::string name;
  H5L_type_t type = H5L_TYPE_ERROR;
};

/// Opened by its address: by their paths, groups inside each other would be walked through again and again.
struct Group {
  std::string path;  // with a trailing slash
  haddr_t address = HADDR_UNDEF;
};

struct Listing {
  std::size_t path_bytes = 0;  // of the group
  std::vector<Link>* out = nullptr;
  std::size_t* bytes = nullptr;
};

herr_t take_link(hid_t, const char* name, const H5L_info_t* info, void* data) {
  auto& listing = *static_cast<Listing*>(data);
  *listing.bytes += listing.path_bytes + std::strlen(name);
  if (*listing.bytes > kMostNameBytes) return -1;
  listing.out->push_back({name, info->type});
  return 0;
}

std::size_t depth_of(const std::string& path) {
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

/// Every object under each of its names.
class Tree {
 public:
  explicit Tree(hid_t file) : file_(file) {}

  void walk() {
    H5O_info_t root;
    if (H5Oget_info_by_name2(file_, "/", &root, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
      stop_at("/", "the root group cannot be read");
    std::vector<Group> groups{{"/", root.addr}};
    groups_.insert(root.addr);
    while (!groups.empty()) {
      const Group group = std::move(groups.back());
      groups.pop_back();
      const hid_t opened_type = H5Oopen_by_addr(file_, group.address);
      std::vector<Link> links;
      Listing listing{.path_bytes = group.path.size(), .out = &links, .bytes = &name_bytes_};
      hsize_t at = 0;
      if (opened_type < 0 || H5Literate(opened_type, H5_INDEX_NAME, H5_ITER_INC, &at, take_link, &listing) < 0)
        name_bytes_ > kMostNameBytes ? stop_without_memory("the names of its objects")
                                     : stop_at(group.path, "the group cannot be read");
      objects_ += links.size();
      if (objects_ > kMostObjects) stop("more than a million objects: not read by this version", Verdict::unsupported);
      for (auto link = links.rbegin(); link != links.rend(); ++link) take(opened_type, group.path, *link, groups);
      H5Oclose(opened_type);
    }
  }
  const std::map<haddr_t, std::vector<std::string>>& datasets() const { return datasets_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::pair<std::string, std::string>>& soft() const { return soft_; }

 private:
  void take(hid_t group, const std::string& group_path, const Link& link, std::vector<Group>& groups) {
    const std::string path = group_path + link.name;
    if (link.type == H5L_TYPE_SOFT) {
      soft_link(group, link.name, path);
      return;
    }
    if (link.type != H5L_TYPE_HARD) stop(path + ": a link to another file: refused", Verdict::refused);
    H5O_info_t info;
    if (H5Oget_info_by_name2(group, link.name.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
      stop_at(path, "the object cannot be read");
    if (info.type == H5O_TYPE_DATASET) {
      datasets_[info.addr].push_back(path);
    } else if (info.type == H5O_TYPE_GROUP) {
      if (groups_.insert(info.addr).second)
        groups.push_back({path + "/", info.addr});
      else
        notes_.push_back(path + ": a second link to a group: left out");
    }
  }

  /// A soft link is followed if it leads to a dataset of this file, which is found by the object's address.
  void soft_link(hid_t group, const std::string& name, const std::string& path) {
    H5L_info_t link;
    if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0 || link.u.val_size > kMostAttributeBytes) {
      notes_.push_back(path + ": a link that cannot be read: left out");
      return;
    }
    std::vector<char> value(link.u.val_size + 1, '\0');
    H5Lget_val(group, name.c_str(), value.data(), link.u.val_size, H5P_DEFAULT);
    soft_.emplace_back(path, value.data());
  }

  hid_t file_;
  std::map<haddr_t, std::vector<std::string>> datasets_;  // by address: names
  std::set<haddr_t> groups_;
  std::vector<std::pair<std::string, std::string>> soft_;
  std::vector<std::string> notes_;
  std::size_t name_bytes_ = 0;
  std::size_t objects_ = 0;
};

void put_dataset(std::string& out, hid_t file, const std::string& path, haddr_t address) {
  const hid_t dataset = H5Oopen_by_addr(file, address);
  if (dataset < 0 || H5Iget_type(dataset) != H5I_DATASET) stop_at(path, "the dataset cannot be opened");
  const hid_t type = H5Dget_type(dataset);
  const hid_t space = H5Dget_space(dataset);
  const hid_t create = H5Dget_create_plist(dataset);
  if (type < 0 || space < 0 || create < 0) stop_at(path, "the dataset cannot be read");
  const H5D_layout_t layout = H5Pget_layout(create);
  if (layout == H5D_VIRTUAL) stop(path + ": a virtual dataset, whose bytes are elsewhere: refused", Verdict::refused);
  if (H5Pget_external_count(create) > 0) stop(path + ": its bytes are in other files: refused", Verdict::refused);
  Type element = type_of(type);
  if (H5Sget_simple_extent_type(space) == H5S_NULL) element = {.code = kNoType, .text = "no value (a null dataspace)"};
  if (element.code != kNoType) static_cast<void>(Filters(create, path));  // exits for an unsupported filter
  put(out, path);
  ckpt::append_little_endian(out, address, 8);
  ckpt::append_little_endian(out, static_cast<std::uint64_t>(element.code), 1);
  ckpt::append_little_endian(out, element.big_endian ? 1 : 0, 1);
  put(out, element.text);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 0 || rank > H5S_MAX_RANK) stop_at(path, "the shape cannot be read");
  hsize_t sizes[H5S_MAX_RANK] = {};
  if (rank > 0 && H5Sget_simple_extent_dims(space, sizes, nullptr) < 0) stop_at(path, "the shape cannot be read");
  ckpt::append_little_endian(out, static_cast<std::uint64_t>(rank), 1);
  for (int d = 0; d < rank; ++d) ckpt::append_little_endian(out, sizes[d], 8);
  const haddr_t offset = layout == H5D_CONTIGUOUS ? H5Dget_offset(dataset) : HADDR_UNDEF;
  ckpt::append_little_endian(out, offset == HADDR_UNDEF ? ~std::uint64_t{0} : offset, 8);
  ckpt::append_little_endian(out, H5Dget_storage_size(dataset), 8);
  hsize_t chunk[H5S_MAX_RANK] = {1};
  if (layout == H5D_CHUNKED && rank > 0 && H5Pget_chunk(create, rank, chunk) != rank)
    stop_at(path, "the chunks cannot be read");
  ckpt::append_little_endian(out, std::max<hsize_t>(1, chunk[0]), 8);
  put(out, attributes_of(dataset, "ckpt_"));
  H5Pclose(create);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(dataset);
}

}  // namespace

int print_map(const Range& range) {
  const hid_t file = open_range(range);
  Tree tree(file);
  tree.walk();
  std::vector<std::string> notes = tree.notes();
  std::map<haddr_t, std::string> first;  // the name that a dataset has: the deepest, of those the first
  std::vector<std::pair<std::string, std::string>> others;
  for (const auto& [address, names] : tree.datasets()) {
    const auto chosen = std::min_element(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return depth_of(a) != depth_of(b) ? depth_of(a) > depth_of(b) : a < b;
    });
    first.emplace(address, *chosen);
    for (const std::string& name : names) {
      if (&name != &*chosen) others.emplace_back(name, *chosen);
    }
  }
  for (const auto& [path, target] : tree.soft()) {
    H5O_info_t info;
    const bool found = H5Oget_info_by_name2(file, path.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0;
    const auto dataset = found && info.type == H5O_TYPE_DATASET ? first.find(info.addr) : first.end();
    if (dataset != first.end())
      others.emplace_back(path, dataset->second);
    else
      notes.push_back(path + ": a link to " + target + ", which is not a dataset of this file: left out");
  }
  std::vector<std::pair<std::string, haddr_t>> paths;
  for (const auto& [address, path] : first) paths.emplace_back(path, address);
  std::sort(paths.begin(), paths.end());
  std::sort(others.begin(), others.end());

  std::string out;
  const hid_t root = H5Oopen(file, "/", H5P_DEFAULT);
  put(out, attributes_of(root, ""));
  H5Oclose(root);
  ckpt::append_little_endian(out, paths.size(), 4);
  for (const auto& [path, address] : paths) put_dataset(out, file, path, address);
  put(out, others);
  ckpt::append_little_endian(out, notes.size(), 4);
  for (const std::string& note : notes) put(out, note);
  say(out);
  return 0;
}
