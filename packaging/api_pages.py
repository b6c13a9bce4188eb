#!/usr/bin/env python3
"""Writes docs/python-api.md from the signatures and docstrings of the package's public names: packaging/api_pages.py [--check]

Reads the sources and imports nothing, so that it needs neither torch nor an adapter's framework. Ends with 1 if a public name has no
docstring or a docstring does not name each parameter; with --check, which writes nothing, also if the page is not up to date.

A docstring is paragraphs, indented examples, and entries: a name, two spaces or more, and a text that indented lines continue.
"""
import argparse
import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE, PAGE = ROOT / "python" / "ckpt", ROOT / "docs" / "python-api.md"
SECTIONS = {"Save and load": "run", "Read any checkpoint": "checkpoint", "Commands": "commands", "Errors": "errors",
            "torch.distributed.checkpoint": "dcp", "JAX": "integrations/jax", "Hugging Face Trainer": "integrations/transformers",
            "Accelerate": "integrations/accelerate", "DeepSpeed": "integrations/deepspeed", "Lightning": "integrations/lightning",
            "Keras": "integrations/keras"}
RESULTS = {"Checkpoint", "Info", "LoadReport", "Pending", "Result", "Tensor"}  # other calls return these: no constructor is shown
CALLED = "Called by "  # how the docstring of a method begins that only a framework calls
GENERICS = {"Dict": "dict", "List": "list", "Tuple": "tuple"}
MOST_COLUMNS = 110


def parsed(module):
    return ast.parse((PACKAGE / f"{module}.py").read_text())


class Names(ast.NodeTransformer):
    """Annotations as a reader writes them: aliases resolved, unions by bars."""

    def __init__(self, modules):
        self._aliases = {}
        for module in modules:
            for node in ast.walk(parsed(module)):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and isinstance(node.targets[0], ast.Name):
                    self._aliases.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.ImportFrom) and node.module in ("numpy", "torch"):
                    self._aliases.update({each.asname: ast.parse(f"{node.module}.{each.name}", mode="eval").body for each in node.names
                                          if each.asname})

    def text(self, annotation):
        return ast.unparse(self.visit(ast.parse(ast.unparse(annotation), mode="eval").body)).replace("'", "")

    def visit_Name(self, node):
        if node.id in self._aliases:
            return self.visit(ast.parse(ast.unparse(self._aliases[node.id]), mode="eval").body)
        return ast.Name(GENERICS.get(node.id, node.id))

    def visit_Attribute(self, node):
        return self.visit_Name(ast.Name(node.attr)) if node.attr in self._aliases else node

    def visit_Constant(self, node):
        return ast.Name(node.value) if isinstance(node.value, str) else node

    def visit_Subscript(self, node):
        kind = node.value.id if isinstance(node.value, ast.Name) else ""
        if kind not in ("Optional", "Union"):
            return self.generic_visit(node)
        parts = [self.visit(each) for each in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
        if kind == "Optional":
            parts.append(ast.Constant(None))
        parts.sort(key=lambda each: ast.unparse(each) == "None")
        return ast.Name(" | ".join(ast.unparse(each) for each in parts))


def parameters(arguments, names):
    """Of a call, as text, without self."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    shown = [(each, default, "") for each, default in zip(positional, defaults) if each.arg not in ("self", "cls")]
    if arguments.vararg:
        shown.append((arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        shown.append((None, None, "*"))
    shown += [(each, default, "") for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        shown.append((arguments.kwarg, None, "**"))
    texts = []
    for each, default, stars in shown:
        if each is None:
            texts.append(stars)
            continue
        kind = f": {names.text(each.annotation)}" if each.annotation else ""
        equals = "" if default is None else f" = {ast.unparse(default)}" if kind else f"={ast.unparse(default)}"
        texts.append(f"{stars}{each.arg}{kind}{equals}")
    return texts


def call(name, function, names, returns=True):
    """A signature in a code block."""
    texts = parameters(function.args, names)
    tail = f" -> {names.text(function.returns)}" if returns and function.returns is not None else ""
    line = f"{name}({', '.join(texts)}){tail}"
    if len(line) > MOST_COLUMNS:
        line = f"{name}(\n" + textwrap.indent(",\n".join(texts), "    ") + f"\n){tail}"
    return f"```python\n{line}\n```\n"


def prose(docstring):
    """A docstring as Markdown."""
    out, paragraph, code = [], [], []

    def end():
        if paragraph:
            out.append("\n".join(paragraph) + "\n")
        if code:
            out.append("```python\n" + textwrap.dedent("\n".join(code)).strip() + "\n```\n")
        paragraph.clear()
        code.clear()

    is_entry = False
    for line in docstring.splitlines():
        entry = re.match(r"([a-z]\w*(?:, \w+)*) {2,}(\S.*)", line)
        if not line.strip():
            if code:
                code.append("")
            else:
                end()
                is_entry = False
        elif entry:
            if not is_entry:
                end()
            is_entry = True
            paragraph.append(f"- **{entry[1]}**: {entry[2]}")
        elif is_entry:
            paragraph.append("  " + line.strip())
        elif line.startswith("    ") and not paragraph:
            code.append(line)
        else:
            if code:
                end()
            paragraph.append(line)
    end()
    return "\n".join(out)


class Page:
    """`problems` says what is not documented."""

    def __init__(self):
        self.problems = []
        self.parts = []
        self.index = []
        self._names = Names([*SECTIONS.values(), "_retention"])

    def documented(self, name, node, wanted=()):
        docstring = ast.get_docstring(node)
        if not docstring:
            self.problems.append(f"{name}: no docstring")
            return
        for each in wanted:
            if not re.search(rf"\b{each}\b", docstring):
                self.problems.append(f"{name}: the docstring does not name `{each}`")
        self.parts.append(prose(docstring))

    def heading(self, level, name):
        self.parts.append(f"{'#' * level} {name}\n")

    def function(self, level, name, node, short=None):
        self.heading(level, name)
        self.parts.append(call(short or name, node, self._names))
        arguments = node.args
        self.documented(name, node, [each.arg for each in [*arguments.args, *arguments.kwonlyargs] if each.arg not in ("self", "cls")])

    def klass(self, name, node):
        bare = name.rpartition(".")[2]
        self.heading(3, name)
        made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        bases = ", ".join(ast.unparse(each) for each in node.bases)
        if bases:
            self.parts.append(f"Bases: {bases}\n")
        is_shown = made is not None and bare not in RESULTS
        if is_shown:
            self.parts.append(call(name, made, self._names, returns=False))
        self.documented(name, node)
        if is_shown:
            docstring = ast.get_docstring(made)
            if docstring:
                self.parts.append(prose(docstring))
            both = f"{ast.get_docstring(node)}\n{docstring or ''}"
            self.problems += [f"{name}: the docstrings do not name `{each.arg}`" for each in [*made.args.args[1:], *made.args.kwonlyargs]
                              if not re.search(rf"\b{each.arg}\b", both)]
        fields = [f"{each.target.id}: {self._names.text(each.annotation)}" for each in node.body if isinstance(each, ast.AnnAssign)]
        if fields:
            self.parts.append("```python\n" + "\n".join(fields) + "\n```\n")
        others = {each.value.id: each.targets[0].id for each in node.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name)}
        callbacks = []
        for each in node.body:
            if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
                continue
            if (ast.get_docstring(each) or "").startswith(CALLED):
                callbacks.append(f"`{each.name}`")
                continue
            if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in each.decorator_list):
                self.heading(4, f"{bare}.{each.name}")
                self.parts.append(f"```python\n{each.name}: {self._names.text(each.returns)}\n```\n")
                self.documented(f"{name}.{each.name}", each)
            else:
                self.function(4, f"{bare}.{each.name}", each, each.name)
            if each.name in others:
                self.parts.append(f"`{others[each.name]}` is another name of it.\n")
        if callbacks:
            self.parts.append(f"The framework calls {', '.join(callbacks)}.\n")

    def section(self, title, module, wanted):
        tree = parsed(module)
        prefix = "ckpt" if wanted is not None else f"ckpt.{module.replace('/', '.')}"
        public = wanted or {name: name for name in exported(tree)}
        found = {node.name: node for node in [*tree.body, *imported(tree)] if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.heading(2, title)
        where = f"`import {prefix}`\n\n" if wanted is None else ""
        self.parts.append(where + prose(ast.get_docstring(tree)))
        missing = [name for name in public if name not in found]
        self.problems += [f"{prefix}.{name}: not found in {module}.py" for name in missing]
        for node in sorted(found.values(), key=lambda each: each.name in RESULTS):
            if node.name in public:
                name = f"{prefix}.{public[node.name]}"
                self.index.append((title, name))
                self.klass(name, node) if isinstance(node, ast.ClassDef) else self.function(3, name, node)


def exported(tree):
    """The public names of a module: `__all__`, else what it defines."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]


def imported(tree):
    """Definitions in private modules that a module imports names from."""
    return [each for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1 and (node.module or "").startswith("_")
            for each in parsed(node.module).body if getattr(each, "name", None) in {name.name for name in node.names}]


def of_package():
    """The names of `import ckpt`, by module: the name there, and the name here."""
    by_module = {}
    for node in ast.walk(parsed("__init__")):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            by_module.setdefault(node.module, {}).update({each.name: each.asname or each.name for each in node.names})
    return by_module


def anchor(name):
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def page():
    made, names = Page(), of_package()
    for title, module in SECTIONS.items():
        made.section(title, module, names.get(module))
    shown = {name[len("ckpt."):] for _, name in made.index if name.count(".") == 1}
    made.problems += [f"ckpt.{name}: on no page" for name in set(exported(parsed("__init__"))) - shown]
    folder = {f"integrations/{path.stem}" for path in (PACKAGE / "integrations").glob("[!_]*.py")}
    made.problems += [f"{module}: on no page" for module in folder - set(SECTIONS.values())]
    index = [f"- {title}: " + ", ".join(f"[`{name}`](#{anchor(name)})" for of, name in made.index if of == title) for title in SECTIONS]
    head = ("# Python API\n\nGenerated by `packaging/api_pages.py` from the signatures and docstrings of the package `ckpt`: edit those. "
            "The [guide with examples](python.md) explains how the calls work together. Errors are classes of [Errors](#errors).\n")
    return "\n".join([head, "\n".join(index) + "\n", *made.parts]), made.problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the page is not up to date")
    check = parser.parse_args().check
    text, problems = page()
    if check and (not PAGE.exists() or PAGE.read_text() != text):
        problems.append(f"{PAGE.relative_to(ROOT)} is not up to date: run packaging/api_pages.py")
    elif not check:
        PAGE.write_text(text)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
