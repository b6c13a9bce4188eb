#pragma once

#include <string>
#include <string_view>

#include "format/text/json_writer.hpp"

namespace ckpt::cli {

/// Writes a whole JSON document. In all JSON of the command, texts need not be UTF-8: invalid bytes become U+FFFD, and
/// characters that terminals hide are escaped.
json::Writer document_writer(std::string& text);
/// Writes the member `data` of one.
json::Writer data_writer(std::string& data);
/// The same on one line, as a separate document.
json::Writer line_writer(std::string& line);

/// A member whose text (a path, a name) need not be UTF-8: where bytes were replaced, `key`_b64 holds the true ones.
void put_text(json::Writer& out, std::string_view key, std::string_view text);
/// null if the text is empty.
void put_optional(json::Writer& out, std::string_view key, std::string_view text);

/// The bytes in base64 (RFC 4648, padded).
std::string base64(std::string_view bytes);

}  // namespace ckpt::cli
