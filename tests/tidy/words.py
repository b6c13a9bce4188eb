"""Plain English: phrases that no native engineer would write, in strings that users see, comments and documents."""
import ast
import io
import re
import tokenize

from source_text import _TOKEN, arguments, code_only, project_files, read, verdict

GLOSSARY, MOST_TERMS = "src/README.md", 30
FOLDERS = ("cli/", "helper/", "include/", "src/")

# pattern: what to write instead
STRINGS = {
    r"\bnot any ?more\b|\bany more\b": "no longer",
    r"\bfor good\b": "permanently",
    r"\b[Nn]obody\b": "name the subject: no process, no reader",
    r"\b(is|are|was|were) told\b": "prints, reports, shows",
    r"\bheeded\b": "honoured, followed",
    r"\banew\b": "again, from scratch",
    r"\bgoes on from\b": "continues from",
    r"\bmend(s|ed)?\b": "repair",
    r"\bleft-overs\b": "leftovers",
    r"\blooked at\b": "checked",
    r"\bthose (first )?that\b": "name the thing",
    r"\bso (many|long) (only|after)\b": "at most N, this long",
    r"\bis no (number|id|name|directory|file|OPTION|NAME)\b": "is not a ...",
    r"\bthere is no directory\b": "directory X does not exist",
    r"\b(a|the) (flag|verb)s?\b": "option, command",
    r"\b(stat|open|publish|select|lay out|fsync|pwrite|pread): ": "no function names in messages",
    r"\bis expected\b": "expected ...",
    r"\bis no (dtype|role|plain|tuple|tensor|text|way|part)\b": "is not a ..., unknown ...",
    r"\bin sum\b": "in total",
    r"\bspeaks? of\b": "lists, refers to",
    r"\bgo(es)? on\b": "continue",
    r"\bmeant\b": "the wanted one, the unwanted one",
    r"^(what|who|those)\b.* (is|are)\b(?!.*\?$)": "a plain subject",
}
COMMENTS = {
    r"\bany ?more\b": "no longer",
    r"\bfor good\b": "permanently",
    r"\b[Nn]obody\b": "name the subject",
    r"\b[Ss]omebody\b": "name the subject: a process, a reader",
    r"\b(is|are|was|were|be|been) told\b": "is reported, is passed, is known",
    r"\b[Tt]ells? (of|what|whether|nothing)\b": "reports, shows, says whether",
    r"\bheed(s|ed)?\b": "honours, uses",
    r"\banew\b": "again, from scratch",
    r"\bmend(s|ed)?\b": "repair",
    r"\b(is|are|was|were) looked (at|for)\b": "is checked, is searched",
    r"\bspeaks? of\b": "refers to, names",
    r"\bstands? (in|at|beside|there|here|for|below|before|behind|once)\b": "is in, is at, represents",
    r"\bgoes? on\b": "continues",
    r"\bin (the )?place of\b": "instead of, replaces",
    r"(?<![Tt]here )\bis no (file|dict|list|number|tensor|plain|checkpoint|text)\b": "is not a ...",
    r"\b[Ww]ho(ever)? (reads|writes|asks|deletes|waits|brings|began|begins|finds)\b": "name the subject",
    r"\bsees? to it that\b": "ensures that",
    r"\bthose first that\b": "name the order",
    r"\bfor ever\b": "forever",
    r"\bas (it|they) stands?\b": "unchanged",
    r"\b(is|are|be) (not )?taken for\b": "counts as",
    r"\bon (its|their) way\b": "in progress, in flight, passed up",
    r"\bone an? (rank|file|tensor|entry|index)\b": "one per ...",
    r"\bunder way\b": "in progress",
    r"\bat work\b": "running",
    r"\bunasked\b": "automatically",
    r"\bwholly\b": "completely",
    r"\b(every|any)body\b": "name the subject",
    r"\bof no use\b": "useless, not used",
    r"\bcan(not)? be had\b": "is available",
    r"\bgains nothing\b": "has no benefit",
    r"\bgo(es)? by (the|this|these|their|names?)\b": "is keyed by, is named",
    r"\b(came|comes?) to pass\b": "happens",
    r"\bin vain\b": "without a result",
    r"\blooks? what\b": "checks",
}
# Part of a string -> why it is allowed.
ALLOWED = {
    "left-over": "an id of `repair --json`",
    "mended": "a member of a JSON document",
    "local -a verbs": "a variable of a shell script",
}


def strings(text):
    """(line, content) of each string literal outside of includes."""
    code = code_only(text, keep_strings=True)
    for match in _TOKEN.finditer(code):
        token = match.group(0)
        if token.startswith('"'):
            line = code.count("\n", 0, match.start()) + 1
            if not code.rfind("#include", code.rfind("\n", 0, match.start()) + 1, match.start()) >= 0:
                yield line, token[1:-1]


def python_comments(text):
    """(line, content) of each comment and docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def comments(text):
    for match in _TOKEN.finditer(text):
        if match.group(0).startswith(("//", "/*")):
            yield text.count("\n", 0, match.start()) + 1, match.group(0)


def glossary_findings(text):
    """The glossary is short, and has each term once."""
    terms = re.findall(r"^\| (?!term )([^|]+?) \|", text, re.M)
    findings = [f"{GLOSSARY}: {term}: twice" for term in sorted({term for term in terms if terms.count(term) > 1})]
    if not 0 < len(terms) <= MOST_TERMS:
        findings.append(f"{GLOSSARY}: {len(terms)} terms, not 1 to {MOST_TERMS}")
    return findings


def main():
    options = arguments()
    findings, looked_at = glossary_findings(read(options.root, GLOSSARY)), 0
    for path in project_files(options.root):
        is_code = path.startswith(FOLDERS) and path.endswith((".cpp", ".hpp", ".h", ".c"))
        is_python = path.endswith(".py")
        if not is_code and not is_python and not path.endswith(".md"):
            continue
        looked_at += 1
        text = read(options.root, path)
        if is_python:
            for line, content in python_comments(text):
                for pattern, instead in COMMENTS.items():
                    if re.search(pattern, content):
                        findings.append(f"{path}:{line}: {instead}")
            continue
        if not is_code:
            for pattern, instead in COMMENTS.items():
                for match in re.finditer(pattern, text):
                    line = text.count("\n", 0, match.start()) + 1
                    findings.append(f"{path}:{line}: {match.group(0)!r}: {instead}")
            continue
        for line, content in strings(text):
            if any(part in content for part in ALLOWED):
                continue
            for pattern, instead in STRINGS.items():
                if re.search(pattern, content):
                    findings.append(f"{path}:{line}: {content[:80]!r}: {instead}")
        for line, content in comments(text):
            for pattern, instead in COMMENTS.items():
                if re.search(pattern, content):
                    findings.append(f"{path}:{line}: {instead}")
    verdict(findings, looked_at)


main()
