#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/text/json.hpp"

/// Naming profiles: how the tensors and the settings of a model are called, and cut, in Megatron-LM and in Hugging Face
/// transformers. docs/naming-profiles.md describes the language.
namespace ckpt::naming {

/// The tensors of a rule on the side of transformers, as parts of the one of Megatron-LM.
enum class Form : std::uint8_t {
  same,   ///< one, of the same shape
  vocab,  ///< one; Megatron-LM's has rows of padding after the vocabulary
  glu,    ///< two halves of the rows: gate, up
  qkv,  ///< three; Megatron-LM's rows are those of the first group's queries, its key, its value, then the next group's
  fused,  ///< one, whose rows are all queries, all keys, all values; Megatron-LM's are as those of qkv
};

/// Whether a rule counts: a setting that is set, or is not. The settings `moe` and `dense` are about the rule's layer.
struct Condition {
  std::string setting;
  bool is_set = true;
};

struct Rule {
  std::string megatron;               ///< with {l} for the layer and {e} for the expert
  std::vector<std::string> others{};  ///< names that Megatron-LM gives it with other options
  std::vector<std::string> shape{};   ///< of Megatron-LM's, one expression a dimension; none for what a layer is
  Form form = Form::same;
  bool is_transposed = false;  ///< transformers keeps [in, out]
  std::vector<std::string> hf{};
  std::vector<Condition> when{};
  bool has_layer() const { return megatron.find("{l}") != std::string::npos; }
  /// Of a multi-token prediction layer alone; those of layers hold for it, too.
  bool is_of_prediction() const { return megatron.starts_with("mtp.layers.{l}."); }
  bool has_expert() const { return megatron.find("{e}") != std::string::npos; }
};

/// A tensor of transformers that holds another one again, in each multi-token prediction layer.
struct Copy {
  std::string name;  ///< with {l} for the layer
  std::string of;
};

/// A key of config.json and an argument of Megatron-LM.
struct ConfigLine {
  enum class How : std::uint8_t {
    same,
    negated,        ///< true here is false there
    leading_dense,  ///< moe_layer_freq, a list, as the number of zeros it begins with
    sparse_step,    ///< as decoder_sparse_step
    quotient,       ///< divided by another argument
    scaling,        ///< rotary scaling of Llama 3.1: whether it is on, and its factor
    derived,        ///< config.json has no such key; `otherwise` gives the argument where it is missing
    hf_constant,    ///< config.json has this value, and Megatron-LM no such argument
    megatron_constant
  } how = How::same;
  std::vector<std::string> hf{};        ///< dotted; read in this order, the last one is written
  std::vector<std::string> megatron{};  ///< read in this order, all are written
  std::string other{};                  ///< the divisor of a quotient, the factor of a scaling: an argument
  json::Value constant{};
  std::string otherwise{};  ///< where it is missing: an expression, or JSON
};

struct Profile {
  std::string family;  ///< "llama"
  std::string summary{};
  std::string architecture{};  ///< "LlamaForCausalLM"
  std::string model_type{};    ///< of config.json
  std::vector<ConfigLine> config{};
  std::vector<Rule> rules{};
  std::vector<Copy> copies{};
  std::string prefix{};                ///< that names of transformers may lack: files of a model without its head
  std::string hash{};                  ///< of its lines and those of its parts, hex: conversions depend on it
  std::vector<std::string> ignored{};  ///< names of either side that are no weights, with * for any text
};

/// include  gives the text of a part that several profiles have, or nothing
/// errors   usage, with `path` and the line: not such a text; a name twice on one side; a rule whose sides do not have
///          the same {l} and {e}
Result<Profile> parse_profile(std::string_view text, const std::string& path,
                              const std::function<std::optional<std::string_view>(std::string_view)>& include);

/// Those that ckpt has, in the order in which arguments of Megatron-LM choose one. They are valid.
std::span<const Profile> profiles();
const Profile* find_profile(std::string_view family);
/// The text of a shared part of them; nothing if there is none of that name.
std::optional<std::string_view> profile_part(std::string_view name);

}  // namespace ckpt::naming
