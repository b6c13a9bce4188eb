#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "api/convert/only_rule.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/output/table.hpp"
#include "cli/output/tree.hpp"
#include "format/text/nearest.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

/// "FP32", "float32", "F32" -> "f32".
std::string dtype_key(std::string_view name) {
  std::string key;
  for (const char c : name) key.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> words{{{"fp", "f"},
                                                                                {"bfloat", "bf"},
                                                                                {"float", "f"},
                                                                                {"uint", "u"},
                                                                                {"int", "i"},
                                                                                {"half", "f16"},
                                                                                {"double", "f64"},
                                                                                {"boolean", "bool"},
                                                                                {"complex", "c"}}};
  for (const auto& [from, to] : words)
    if (key.starts_with(from)) return std::string(to) + key.substr(from.size());
  return key;
}

Result<> keep_dtype(ListReport& report, const std::string& wanted) {
  std::set<std::string> present;
  for (const ListedTensor& tensor : report.tensors) present.insert(dtype_key(tensor.dtype));
  if (!present.contains(dtype_key(wanted)))
    return fail({.code = Errc::not_found,
                 .message = fmt::format("no tensor has dtype '{}'", wanted),
                 .hint = fmt::format("the checkpoint has {}", fmt::join(present, ", "))});
  std::erase_if(report.tensors,
                [&](const ListedTensor& tensor) { return dtype_key(tensor.dtype) != dtype_key(wanted); });
  return {};
}

bool is_of_role(const OnlyRule& rule, std::string_view role) {
  const bool is_weight = role == "param" || role == "buffer" || role == "alias";
  return (rule.weights && is_weight) || (rule.optim && role == "slot");
}

/// `what`: "tensor" or "object", the names that are listed.
Result<> keep_only(ListReport& report, const std::vector<std::string>& only, std::string_view what) {
  const bool wants_objects = what == "object";
  const OnlyRule rule(only);
  std::vector<std::string> names;
  if (wants_objects)
    for (const ListedObject& object : report.objects) names.push_back(object.name);
  else
    for (const ListedTensor& tensor : report.tensors) names.push_back(tensor.name);
  std::erase_if(report.tensors, [&](const ListedTensor& tensor) {
    return !is_of_role(rule, tensor.role) && !rule.matches(tensor.name);
  });
  std::erase_if(report.objects, [&](const ListedObject& object) { return !rule.matches(object.name); });
  if (!(wants_objects ? report.objects.empty() : report.tensors.empty())) return {};
  const auto near = nearest(only.front(), names);
  return fail({.code = Errc::not_found,
               .message = fmt::format("no {} matches --only {} ({})", what, fmt::join(only, ", "),
                                      format_counted(names.size(), "name")),
               .hint = near ? fmt::format("did you mean '{}'?", *near)
                            : "patterns match whole names: use '*.mlp.*', not 'mlp'"});
}

void sort_tensors(ListReport& report, const std::string& key) {
  if (key == "file") return;
  std::ranges::stable_sort(report.tensors, [&](const ListedTensor& a, const ListedTensor& b) {
    if (key == "size" && a.bytes != b.bytes) return a.bytes > b.bytes;
    return natural_less(a.name, b.name);
  });
}

/// A tied name has the dtype and the shape of the tensor that it names, and takes no bytes.
void describe_tied_names(ListReport& report) {
  std::map<std::string_view, const ListedTensor*> by_name;
  for (const ListedTensor& tensor : report.tensors) by_name.emplace(tensor.name, &tensor);
  for (ListedTensor& tensor : report.tensors) {
    const auto target = tensor.alias_of.empty() ? by_name.end() : by_name.find(tensor.alias_of);
    if (target == by_name.end()) continue;
    tensor.dtype = target->second->dtype;
    tensor.shape = target->second->shape;
  }
}

Table make_table(const ListReport& report, bool with_roles, bool for_people, SizeStyle sizes) {
  Table out{.columns = {{.title = "NAME", .shrinks = true},
                        {.title = "DTYPE"},
                        {.title = "SHAPE"},
                        {.title = for_people ? "SIZE" : "BYTES", .right = true}}};
  if (with_roles)
    for (const char* title : {"ROLE", "SLOT", "PARAMETER", "SAME AS"})
      out.columns.push_back({.title = title, .shrinks = std::string_view(title) == "PARAMETER"});
  for (const ListedTensor& tensor : report.tensors) {
    std::vector<std::string> row{printable(tensor.name), tensor.dtype,
                                 fmt::format("[{}]", fmt::join(tensor.shape, ", "))};
    if (!for_people)
      row.push_back(std::to_string(tensor.bytes));
    else
      row.push_back(tensor.alias_of.empty() ? format_size(tensor.bytes, sizes) : "tied");
    if (with_roles)
      for (const std::string& cell : {tensor.role, tensor.slot, tensor.parameter, tensor.alias_of})
        row.push_back(printable(cell));
    out.rows.push_back(std::move(row));
  }
  return out;
}

template <class Listed>
void print_names(Context& context, const std::vector<Listed>& all) {
  std::string out;
  for (const Listed& one : all) out += printable(one.name) + "\n";
  say(context, out, true);
}

void print_objects(Context& context, const ListReport& report) {
  Table table{.columns = {{.title = "NAME", .shrinks = true}, {.title = "VALUE", .shrinks = true}}};
  for (const ListedObject& object : report.objects)
    table.rows.push_back({printable(object.name), printable(object.text)});
  if (context.words.on("tsv")) {
    say(context, draw_tsv(table));
    return;
  }
  const Drawn drawn = draw_aligned(table, context.console.table_width());
  std::string out = drawn.text + format_counted(report.objects.size(), "value");
  if (drawn.shortened != 0)
    out += fmt::format(" · {} shortened; --tsv prints all of it", format_count(drawn.shortened));
  say(context, out + "\n");
}

void print_table(Context& context, const ListReport& report) {
  const bool people = !context.words.on("tsv");
  const Table table = make_table(report, context.words.on("long"), people, context.settings.sizes);
  if (!people) {
    say(context, draw_tsv(table));
    return;
  }
  const Drawn drawn = draw_aligned(table, context.console.table_width());
  std::uint64_t bytes = 0;
  for (const ListedTensor& tensor : report.tensors) bytes += tensor.alias_of.empty() ? tensor.bytes : 0;
  std::string out = drawn.text + fmt::format("{}, {}", format_counted(report.tensors.size(), "name"),
                                             format_size(bytes, context.settings.sizes));
  if (drawn.shortened != 0) out += fmt::format(" · {} shortened; -q prints full names", format_count(drawn.shortened));
  say(context, out + "\n");
}

}  // namespace

Answer run_ls(Context& context) {
  const Words& words = context.words;
  const std::string& word = words.arguments[0];
  if (word.empty()) return failed({.code = Errc::usage, .message = "missing PATH"});
  const bool tree = words.on("tree") || words.value("depth") != nullptr;
  if (tree && words.on("tsv"))
    return failed({.code = Errc::usage, .message = "--tsv cannot be used with --tree or --depth"});
  std::size_t depth = kDeepestTree;
  if (const Value* value = words.value("depth")) {
    const auto count = parse_count(value->text, 1, kDeepestTree);
    if (!count)
      return failed({.code = Errc::usage, .message = fmt::format("{}: {}", value->origin, count.error().message)});
    depth = *count;
  }
  std::string path;
  auto report = ask_alone(context, [&](Session& session) -> Result<ListReport> {
    CKPT_TRY(path, source_path(context, session, word));
    return list_tensors(session, path, words.text("from"));
  });
  if (!report) return failed(std::move(report).error());
  describe_tied_names(*report);
  if (words.value("dtype") != nullptr)
    if (auto kept = keep_dtype(*report, words.text("dtype")); !kept) return failed(std::move(kept).error());
  if (words.value("only") != nullptr)
    if (auto kept = keep_only(*report, words.all("only"), words.on("objects") ? "object" : "tensor"); !kept)
      return failed(std::move(kept).error());
  sort_tensors(*report, words.text("sort"));
  Answer out;
  take_warnings(out, report->findings);
  print_findings(context, out.warnings);
  if (context.settings.json)
    out.data = data_of(*report, path);
  else if (words.on("objects"))
    context.settings.quiet ? print_names(context, report->objects) : print_objects(context, *report);
  else if (context.settings.quiet)
    print_names(context, report->tensors);
  else if (tree)
    say(context, draw_tree(report->tensors, depth, context.settings.sizes, context.settings.verbose == 0));
  else
    print_table(context, *report);
  return out;
}

}  // namespace ckpt::cli
