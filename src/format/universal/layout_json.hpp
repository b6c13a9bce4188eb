#pragma once

#include "format/result.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/mesh_layout.hpp"

/// Layouts as the manifest writes them: FORMAT.md section 6.
namespace ckpt::universal {

/// Writes a layout that passed check_layout.
void put_layout(json::Writer& out, const Layout& layout);

/// Reads one and checks it by itself.
/// errors   newer: an unknown kind or cut rule; corrupt: anything else. The message is the reason
///          alone
Result<Layout> read_layout(const json::Value& value);

}  // namespace ckpt::universal
