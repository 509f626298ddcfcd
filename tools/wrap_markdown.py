#!/usr/bin/env python3
"""Wraps the prose of Markdown pages at 100 columns.

    tools/wrap_markdown.py docs/how-to/*.md

Paragraphs and list items are wrapped. Headings, tables, fenced or indented code, comments and HTML
stay as they are. A code span or a link is not cut, so a line with a long one may be longer.
"""
import re
import sys

WIDTH = 100
ITEM = re.compile(r"( *)([-*]|\d+\.) +")
KEPT = re.compile(r"#|\||<|!\[|    |\t|---|>")  # beginnings of lines that are never joined or cut
# If a wrapped line began with one of these, it would be a list, a heading, a quote or a table.
MARK = re.compile(r"([-+*]|#+|\d+[.)])$|[>|]")


def words_of(text):
    """Returns the words of the text. A code span and the text or target of a link are not cut."""
    spans = r"(`[^`]*`|\[[^\]]*\]\([^)]*\)|[^\s`\[]|`|\[)+"
    return [match.group(0) for match in re.finditer(spans, text)]


def wrap(text, first, rest):
    lines, line = [], first
    empty = True
    for word in words_of(text):
        if not empty and len(line) + 1 + len(word) > WIDTH and not MARK.match(word):
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return lines + [line]


def wrapped(page):
    out, paragraph, first, rest = [], [], "", ""
    code = comment = False

    def end_paragraph():
        if paragraph:
            out.extend(wrap(" ".join(paragraph), first, rest))
            paragraph.clear()

    for line in page.split("\n"):
        if line.lstrip().startswith("```"):
            end_paragraph()
            code = not code
            out.append(line)
            continue
        comment = comment or line.startswith("<!--")
        item = ITEM.match(line)
        if item and paragraph and not first.strip() and item.group(2) not in "-*1.":
            item = None  # a number at the start of a paragraph's line
        kept = KEPT.match(line) and not (item or paragraph) or line.lstrip().startswith("|")
        if code or comment or kept or not line.strip():
            end_paragraph()
            out.append(line)
        elif item:
            end_paragraph()
            first, rest = item.group(0), " " * len(item.group(0))
            paragraph.append(line[len(first):].strip())
        elif paragraph and not re.match(r"#|\||<|!\[|---", line):
            paragraph.append(line.strip())
        elif KEPT.match(line):
            end_paragraph()
            out.append(line)
        else:
            first = rest = re.match(" *", line).group(0)
            paragraph.append(line.strip())
        comment = comment and "-->" not in line
    end_paragraph()
    return "\n".join(out)


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            old = file.read()
        new = wrapped(old)
        if "".join(old.split()) != "".join(new.split()):
            sys.exit(f"{path}: wrapping would change the text; nothing was written")
        if new != old:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)


if __name__ == "__main__":
    main()
