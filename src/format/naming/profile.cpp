#include "format/naming/profile.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "format/hash.hpp"
#include "format/model/value.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::naming {
namespace {

constexpr std::size_t kMostLines = 10'000;
constexpr std::size_t kMostParts = 16;  // included, in all

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

/// The texts between separators outside of parentheses.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  int nested = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++nested;
    if (i < text.size() && text[i] == ')') --nested;
    if (i < text.size() && (text[i] != separator || nested != 0)) continue;
    out.emplace_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return out;
}

/// "LEFT = RIGHT" at the first separator.
std::optional<std::pair<std::string_view, std::string_view>> cut(std::string_view text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(trimmed(text.substr(0, at)), trimmed(text.substr(at + separator.size())));
}

/// The argument of "NAME(ARGUMENT)".
std::optional<std::string_view> argument_of(std::string_view text, std::string_view name) {
  if (!text.starts_with(name) || !text.ends_with(')') || text.size() < name.size() + 2 || text[name.size()] != '(')
    return std::nullopt;
  return trimmed(text.substr(name.size() + 1, text.size() - name.size() - 2));
}

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of(" ()[],=|") == std::string_view::npos;
}

class Parser {
 public:
  using Include = std::function<std::optional<std::string_view>(std::string_view)>;
  Parser(std::string path, const Include& include) : path_(std::move(path)), include_(include) {}

  Result<Profile> run(std::string_view text) {
    where_ = path_;
    if (!is_utf8(text)) return bad("not UTF-8");
    CKPT_CHECK(lines(text, path_));
    if (!is_name(out_.family)) return bad("no family");
    if (out_.rules.empty()) return bad("no tensor");
    out_.hash = hasher_.digest().hex();
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> bad(const std::string& reason) const {
    return fail({.code = Errc::usage, .message = where_ + ": " + reason, .file = path_});
  }

  Result<> lines(std::string_view text, const std::string& name) {
    if (++parts_ > kMostParts) return bad("too many parts");
    std::size_t number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      line = trimmed(line.substr(0, std::min(line.find('#'), line.size())));
      ++number;
      if (++lines_ > kMostLines) return bad("too many lines");
      where_ = name + ": line " + std::to_string(number);
      hasher_.update(line);
      hasher_.update("\n");
      if (!line.empty()) CKPT_CHECK(one(line));
    }
    scope_ = {};
    return {};
  }

  Result<> one(std::string_view line) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, blank);
    const std::string_view rest = trimmed(line.substr(blank));
    if (word == "family") return take_name(rest, out_.family);
    if (word == "architecture") return take_name(rest, out_.architecture);
    if (word == "model_type") return take_name(rest, out_.model_type);
    if (word == "summary") {
      out_.summary = rest;
      return {};
    }
    if (word == "prefix") return take_name(rest, out_.prefix);
    if (word == "derive") return derive(rest);
    if (word == "include") return part(rest);
    if (word == "config") return config(rest);
    if (word == "args") return constant(rest, ConfigLine::How::megatron_constant);
    if (word == "scope") return scope(rest);
    if (word == "ignore") {
      out_.ignored.emplace_back(rest);
      return {};
    }
    if (word == "tensor") return tensor(rest);
    if (word == "copy") return copy(rest);
    return bad("unknown word '" + std::string(word) + "'");
  }

  Result<> take_name(std::string_view text, std::string& into) const {
    if (!is_name(text)) return bad("'" + std::string(text) + "' is not a name");
    into = text;
    return {};
  }

  Result<> part(std::string_view name) {
    const auto text = include_(name);
    if (!text) return bad("no part '" + std::string(name) + "'");
    const std::string back = where_;
    CKPT_CHECK(lines(*text, std::string(name)));
    where_ = back;
    return {};
  }

  Result<> constant(std::string_view text, ConfigLine::How how) {
    const auto sides = cut(text, ":=");
    if (!sides || !is_name(sides->first)) return bad("a constant is NAME := JSON");
    auto value = json::parse(sides->second);
    if (!value) return bad("'" + std::string(sides->second) + "' is not JSON");
    ConfigLine line{.how = how, .constant = *std::move(value)};
    (how == ConfigLine::How::hf_constant ? line.hf : line.megatron).emplace_back(sides->first);
    out_.config.push_back(std::move(line));
    return {};
  }

  Result<> derive(std::string_view text) {
    const auto sides = cut(text, "=");
    if (!sides || !is_name(sides->first)) return bad("a derived setting is ARGUMENT = EXPRESSION");
    ConfigLine line{.how = ConfigLine::How::derived, .otherwise = std::string(sides->second)};
    line.megatron.emplace_back(sides->first);
    out_.config.push_back(std::move(line));
    return {};
  }

  Result<> config(std::string_view text) {
    if (text.find(":=") != std::string_view::npos) return constant(text, ConfigLine::How::hf_constant);
    auto sides = cut(text, "=");
    if (!sides) return bad("a setting is KEY = ARGUMENT");
    ConfigLine line{.hf = split(sides->first, '|')};
    if (const auto parts = cut(sides->second, " else ")) {
      sides->second = parts->first;
      line.otherwise = parts->second;
    }
    if (sides->second.starts_with("not ")) {
      line.how = ConfigLine::How::negated;
      sides->second = trimmed(sides->second.substr(4));
    } else if (const auto leading = argument_of(sides->second, "leading_dense")) {
      line.how = ConfigLine::How::leading_dense;
      sides->second = *leading;
    } else if (const auto step = argument_of(sides->second, "sparse_step")) {
      line.how = ConfigLine::How::sparse_step;
      sides->second = *step;
    }
    if (const auto quotient = argument_of(sides->second, "quotient")) {
      const auto parts = cut(*quotient, ",");
      if (!parts || !is_name(parts->second)) return bad("a quotient is quotient(ARGUMENT, ARGUMENT)");
      line.how = ConfigLine::How::quotient;
      line.other = parts->second;
      sides->second = parts->first;
    }
    if (const auto scaling = argument_of(sides->second, "llama3_scaling")) {
      const auto parts = cut(*scaling, ",");
      if (!parts || !is_name(parts->second)) return bad("a scaling is llama3_scaling(ARGUMENT, ARGUMENT)");
      line.how = ConfigLine::How::scaling;
      line.other = parts->second;
      sides->second = parts->first;
    }
    line.megatron = split(sides->second, '|');
    if (!std::ranges::all_of(line.hf, is_name) || !std::ranges::all_of(line.megatron, is_name))
      return bad("a setting is KEY = ARGUMENT");
    out_.config.push_back(std::move(line));
    return {};
  }

  Result<> scope(std::string_view text) {
    const auto sides = cut(text, "=");
    if (!sides || !is_name(sides->first) || !is_name(sides->second)) return bad("a scope is NAME = NAME");
    scope_ = {std::string(sides->first), std::string(sides->second)};
    return {};
  }

  std::string full(const std::string& name, const std::string& above) const {
    return name.starts_with('.') ? above + name : name;
  }

  Result<> tensor(std::string_view text) {
    Rule rule;
    if (const auto parts = cut(text, " when ")) {
      text = parts->first;
      for (const std::string& condition : split(parts->second, ',')) {
        const bool is_not = condition.starts_with("not ");
        rule.when.push_back({is_not ? condition.substr(4) : condition, !is_not});
        if (!is_name(rule.when.back().setting)) return bad("'" + condition + "' is not a condition");
      }
    }
    const auto sides = cut(text, " = ");
    if (!sides) return bad("a tensor is NAME [SHAPE] = TENSORS");
    const std::size_t open = sides->first.find('[');
    if (open == std::string_view::npos || !sides->first.ends_with(']')) return bad("no shape");
    const std::string_view shape = sides->first.substr(open + 1, sides->first.size() - open - 2);
    if (!trimmed(shape).empty()) rule.shape = split(shape, ',');
    std::vector<std::string> names = split(trimmed(sides->first.substr(0, open)), '|');
    for (std::string& name : names) name = full(name, scope_.first);
    rule.megatron = names.front();
    rule.others.assign(names.begin() + 1, names.end());
    CKPT_CHECK(tensors(sides->second, rule));
    CKPT_CHECK(check(rule));
    out_.rules.push_back(std::move(rule));
    return {};
  }

  Result<> copy(std::string_view text) {
    const auto sides = cut(text, " = ");
    if (!sides || !is_name(sides->first) || !is_name(sides->second)) return bad("expected: copy NAME = NAME");
    Copy one{.name = full(std::string(sides->first), scope_.second), .of = std::string(sides->second)};
    std::string pattern = one.name;
    const std::size_t layer = pattern.find("{l}");
    if (layer == std::string::npos) return bad("'" + one.name + "' lacks {l}, the number of its layer");
    out_.ignored.push_back(pattern.replace(layer, 3, "*"));  // Megatron-LM has it once
    out_.copies.push_back(std::move(one));
    return {};
  }

  Result<> tensors(std::string_view text, Rule& rule) const {
    constexpr std::array<std::pair<std::string_view, Form>, 4> kForms{
        {{"vocab", Form::vocab}, {"glu", Form::glu}, {"qkv", Form::qkv}, {"fused", Form::fused}}};
    for (const auto& [name, form] : kForms) {
      const auto inside = argument_of(text, name);
      if (!inside) continue;
      rule.form = form;
      text = *inside;
      break;
    }
    if (const auto inside = argument_of(text, "t")) {
      rule.is_transposed = true;
      text = *inside;
    }
    for (const std::string& name : split(text, ',')) rule.hf.push_back(full(name, scope_.second));
    const std::size_t wanted = rule.form == Form::qkv ? 3 : rule.form == Form::glu ? 2 : 1;
    if (rule.hf.size() != wanted) return bad("it needs " + std::to_string(wanted) + " tensors of transformers");
    return {};
  }

  Result<> check(const Rule& rule) {
    const auto has = [](const std::string& name, std::string_view what) {
      return name.find(what) != std::string::npos;
    };
    std::vector<std::string> all = rule.others;
    all.push_back(rule.megatron);
    all.insert(all.end(), rule.hf.begin(), rule.hf.end());
    for (const std::string& name : all) {
      if (!is_name(name)) return bad("'" + name + "' is not a name");
      for (const std::string_view what : {"{l}", "{e}"}) {
        if (has(name, what) != has(rule.megatron, what))
          return bad(name + ": " + std::string(what) + " on one side only");
      }
    }
    if (rule.has_expert() && !rule.has_layer()) return bad("an expert without a layer");
    if (rule.shape.empty()) return bad("no shape");
    if (rule.is_transposed && rule.shape.size() != 2) return bad("only matrices are transposed");
    // A name belongs to one tensor, except where conditions tell rules apart.
    for (const std::string& name : all) {
      std::string key = name;
      for (const Condition& one : rule.when) key += (one.is_set ? " when " : " when not ") + one.setting;
      if (!names_.insert(key).second) return bad("the name " + name + " is there twice");
    }
    return {};
  }

  std::string path_;
  const Include& include_;
  Profile out_{};
  Hasher hasher_{};
  std::string where_{};
  std::size_t parts_ = 0;
  std::size_t lines_ = 0;
  std::pair<std::string, std::string> scope_{};
  std::set<std::string> names_{};
};

}  // namespace

Result<Profile> parse_profile(std::string_view text, const std::string& path,
                              const std::function<std::optional<std::string_view>(std::string_view)>& include) {
  return Parser(path, include).run(text);
}

const Profile* find_profile(std::string_view family) {
  const auto all = profiles();
  const auto found = std::ranges::find(all, family, &Profile::family);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace ckpt::naming
