#include "writers/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/comm/agree_after.hpp"
#include "engine/comm/comm_text.hpp"
#include "engine/io/host.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {

Result<Nodes> find_nodes(Comm& comm, std::chrono::milliseconds patience, Io& io, const std::string& local_directory) {
  const auto deadline = [&] { return comm.now() + patience; };
  const std::uint64_t mine = local_directory.empty() ? 0 : 1;
  std::uint64_t words[2] = {mine, 1 - mine};
  CKPT_CHECK(comm.max(words, deadline()));
  if (words[0] == 1 && words[1] == 1) {
    return fail(Errc::usage, "some ranks give a local directory, others do not");
  }
  if (local_directory.empty() || comm.ranks() == 1) return Nodes{};

  std::string place;
  const auto find_place = [&]() -> Result<> {
    CKPT_TRY(const auto own, io.new_instance());
    CKPT_CHECK(make_directory(*own, local_directory));
    CKPT_TRY(const FileInfo info, own->stat(local_directory));
    place = fmt::format("{} {} {}", info.device, info.inode, host_name());
    return {};
  };
  CKPT_CHECK(agree_after(comm, patience, find_place));
  CKPT_TRY(const std::vector<std::string> places, comm.gather(place, deadline()));
  std::string text;  // the leader of each rank
  for (const std::string& each : places) {
    append_number(text, static_cast<std::uint64_t>(std::find(places.begin(), places.end(), each) - places.begin()));
  }
  CKPT_CHECK(comm.broadcast(text, deadline()));
  Nodes nodes;
  TextCursor cursor{text};
  for (int rank = 0; rank < comm.ranks(); ++rank) {
    const auto leader = static_cast<int>(cursor.number());
    if (rank == comm.rank()) nodes.leader = leader;
    nodes.several = nodes.several || leader != 0;
  }
  if (cursor.bad || !cursor.rest.empty()) return fail(Errc::internal, "not all ranks' nodes");
  return nodes;
}

}  // namespace ckpt
