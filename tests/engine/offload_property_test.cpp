// Any sequence of calls on the offload store gives what a std::map would, within the memory given.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/offload_tensors.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

struct Call {
  enum class Kind : std::uint8_t { put, get, prefetch, remove, flush } kind = Kind::put;
  std::string name;
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Call& call) {
  constexpr const char* kNames[] = {"put", "get", "prefetch", "remove", "flush"};
  return out << kNames[static_cast<std::size_t>(call.kind)] << ' ' << call.name << ' ' << call.bytes << " #"
             << call.seed;
}

rc::Gen<std::vector<Call>> any_calls() {
  using rc::gen::elementOf;
  using Kind = Call::Kind;
  return rc::gen::container<std::vector<Call>>(rc::gen::build<Call>(
      rc::gen::set(&Call::kind,
                   elementOf(std::vector<Kind>{Kind::put, Kind::put, Kind::put, Kind::get, Kind::get, Kind::get,
                                               Kind::prefetch, Kind::prefetch, Kind::remove, Kind::flush})),
      rc::gen::set(&Call::name, elementOf(std::vector<std::string>{"a", "b", "c", "d", "e"})),
      rc::gen::set(&Call::bytes,
                   elementOf(std::vector<std::size_t>{0, 1, kAlignment, kBufferBytes, kBufferBytes + 1,
                                                      2 * kBufferBytes, 3 * kBufferBytes - 7, 6 * kBufferBytes})),
      rc::gen::set(&Call::seed, rc::gen::inRange<std::uint64_t>(0, 1000))));
}

void behaves_as_a_map(const IoFactory& make_io, const std::string& directory) {
  const auto buffers = *rc::gen::inRange<std::size_t>(2, 9);
  auto opened = OffloadStore::open(make_io, small_store(buffers, directory));
  RC_ASSERT(opened.has_value());
  OffloadStore& store = **opened;
  std::map<std::string, std::vector<std::byte>> model;
  const auto calls = *any_calls();
  for (const Call& call : calls) {
    const bool known = model.count(call.name) > 0;
    switch (call.kind) {
      case Call::Kind::put:
        RC_ASSERT(store.put(call.name, model[call.name] = tensor_bytes(call.bytes, call.seed)).has_value());
        break;
      case Call::Kind::get: {
        RC_ASSERT(store.size_of(call.name).has_value() == known);
        std::vector<std::byte> out(known ? model[call.name].size() : 0);
        RC_ASSERT(store.get(call.name, out).has_value() == known);
        if (known) RC_ASSERT(out == model[call.name]);
        break;
      }
      case Call::Kind::prefetch:
        RC_ASSERT(store.prefetch(call.name).has_value() == known);
        break;
      case Call::Kind::remove:
        RC_ASSERT(store.remove(call.name).has_value() == known);
        model.erase(call.name);
        break;
      case Call::Kind::flush:
        RC_ASSERT(store.flush().has_value());
        break;
    }
  }
  for (const auto& [name, bytes] : model) RC_ASSERT(got(store, name) == bytes);
  const auto statistics = store.statistics();
  RC_ASSERT(statistics.peak_memory_bytes <= buffers * kBufferBytes);
  RC_ASSERT(statistics.write_failures == 0U);
}

RC_GTEST_PROP(OffloadProperty, AnyCallsGiveWhatAMapGivesInMemory, ()) {
  const MemoryDisk disk;
  behaves_as_a_map(on_disk(disk), "/swap");
}

RC_GTEST_PROP(OffloadProperty, AnyCallsGiveWhatAMapGivesOverThreads, ()) {
  const TempDir directory;
  behaves_as_a_map([] { return open_io(IoKind::threads, 4); }, directory.path() + "/swap");
}

RC_GTEST_PROP(OffloadProperty, AnyCallsGiveWhatAMapGivesOverTheRing, ()) {
  if (!open_io(IoKind::uring, 4)) return;  // forbidden here; io_queue_test says so
  const TempDir directory;
  behaves_as_a_map([] { return open_io(IoKind::uring, 4); }, directory.path() + "/swap");
}

}  // namespace
}  // namespace ckpt
