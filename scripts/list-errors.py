#!/usr/bin/env python3
"""Lists the texts of all errors and warnings of the tree, or checks their form.

usage: list-errors.py [--check] [FOLDER]     (default: the tree that this script belongs to)

Prints FILE:LINE: TEXT for each string literal in a call that raises or logs an error, with adjacent
literals joined. A reviewer reads this list. With --check it prints only texts that break a rule:
one line, no capital at the start (unless it begins a name), no full stop at the end, and no word of
scripts/check-words.sh. It then exits with 1.
"""
import os
import re
import sys

FOLDERS = ('core', 'plugins', 'policies', 'eval', 'api', 'apps', 'sdk')
ENDINGS = ('.c', '.h', '.cpp', '.hpp', '.inl')

# Comments, raw strings, strings and characters. So a '//' in a string does not start a comment.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                   r"'(?:\\.|[^'\\\n])'", re.S)

# Calls whose string literals are errors or warnings, for example throw_error(), in.fail(),
# log().warn(), Failure() and throw Error(). Assignments to variables that hold a reason count too.
CALL = re.compile(r'\b(?:throw_\w+|refuse\w*|reject\w*|\w*fail|fail_\w+|Failure|(?:\w+)?Error|'
                  r'set_error|store_error|drop_error|\w+_error|error|warn|warn_\w+|misfit|mismatch|'
                  r'broken|need_that|require\w*|expect|expected|cannot_\w+|notes\.push_back)\s*\(|'
                  r'\b(?:why|reason|problem|refusal|hint|complaint)\s*\+?=(?!=)')

# A text may begin with these words although they begin with a capital.
NAMES = re.compile(r'[A-Z]\w*::|[A-Z]\w*[A-Z0-9_]|[A-Z]\b|U\+|(?:Session|Generation|Removed)\b|No such file or directory|'
                   r'(?:Keel|Vulkan|Gemma|Llama|Ctrl|ByteLevel|Jinja|Linux|Sequence|Split|Metaspace|'
                   r'SentencePiece|Replace|Unicode)\b')


def literal(token):
    """The text of a string literal, with its escapes resolved as far as a reader needs them."""
    return token[1:-1].replace('\\n', '\n').replace('\\"', '"').replace('\\\\', '\\')


def call_end(text, start, tokens, closer):
    """The place after the call or assignment that begins at `start`."""
    depth, i = 0, start
    while i < len(text):
        if i in tokens:
            i = tokens[i]
            continue
        c = text[i]
        if c in '([{':
            depth += 1
        elif c in ')]}':
            if depth == 0:
                return i
            depth -= 1
        elif c == closer and depth == 0:
            return i
        i += 1
    return i


def texts_of(source):
    """[(line, text)] of the errors in a source file."""
    spans = [(m.start(), m.end(), m.group()) for m in TOKEN.finditer(source)]
    tokens = {start: end for start, end, _ in spans}
    strings = [(start, end, body) for start, end, body in spans if body.startswith('"')]
    inside = bytearray(len(source) + 1)
    for start, end, _ in spans:
        inside[start:end] = b'\1' * (end - start)
    wanted = set()
    for call in CALL.finditer(source):
        if inside[call.start()]:
            continue
        closer = ')' if call.group().endswith('(') else ';'
        end = call_end(source, call.end(), tokens, closer)
        wanted.update(s for s, _, _ in strings if call.end() <= s < end)
    found, last_end = [], -1
    for start, end, body in strings:
        if start not in wanted:
            continue
        between = re.sub(r'//[^\n]*', '', source[last_end:start]).strip() if last_end >= 0 else 'x'
        if found and between == '':
            found[-1][1] += literal(body)
        else:
            found.append([source.count('\n', 0, start) + 1, literal(body)])
        last_end = end
    # A single word is a key, a unit or a separator.
    return [(line, text) for line, text in found
            if ' ' in text.strip() and re.search(r'[A-Za-z]{2}', text)]


def plain_words(scripts):
    """{word: plain word} of check-words.sh."""
    with open(os.path.join(scripts, 'check-words.sh'), encoding='utf-8') as file:
        table = re.search(r"^plain='(.*?)'$", file.read(), re.S | re.M).group(1)
    return dict(line.split('=', 1) for line in table.split('\n'))


def faults_of(text, words):
    """The rules that a text breaks."""
    faults = []
    if '\n' in text.strip('\n'):
        faults.append('has more than one line')
    if re.match(r'[A-Z]', text) and not NAMES.match(text):
        faults.append('begins with a capital')
    if re.search(r'[^.]\.$', text.strip()):
        faults.append('ends with a full stop')
    for word, instead in words.items():
        if re.search(rf'\b{re.escape(word)}\b', text.lower()):
            faults.append(f"has '{word}'; write: {instead}")
    return faults


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    check = '--check' in arguments
    folders = [a for a in arguments if a != '--check']
    if len(folders) > 1 or any(a.startswith('-') for a in folders):
        sys.exit(__doc__)
    root = folders[0] if folders else os.path.dirname(here)
    paths = []
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(root, folder)):
            paths += [os.path.join(place, n) for n in names if n.endswith(ENDINGS)]
    words = plain_words(here)
    bad = False
    for path in sorted(paths):
        with open(path, encoding='utf-8') as file:
            source = file.read()
        name = os.path.relpath(path, root)
        for line, text in texts_of(source):
            shown = text.strip().replace('\n', '\\n')
            if not check:
                print(f'{name}:{line}: {shown}')
                continue
            for fault in faults_of(text, words):
                print(f'{name}:{line}: {fault}: {shown}')
                bad = True
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
