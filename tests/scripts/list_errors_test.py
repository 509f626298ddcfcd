#!/usr/bin/env python3
"""list-errors.py finds a message of each kind of call, and its --check finds each broken rule."""
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../scripts/list-errors.py')

SOURCE = r'''
// throw_error("a comment is no message");
void f() {
    throw_error(ErrorKind::input, "{}: expected a number, "
                                  // a comment between two literals
                                  "found '{}'", place, word);
    throw_at(where, ErrorKind::input, "unknown key in 'kv'");
    throw_key_error(ErrorKind::input, "kv.max_mib", "expected 1 or more");
    throw Failure(KEEL_E_INVALID_ARG, "found %u heads", heads);
    throw Error(ErrorKind::usage, fmt::format("the \"file\" is empty"));
    in.fail("the file is damaged");
    if (bad) refuse(at, why ? "first reason here" : "second reason here");
    broken("needs {} and {}", a, b);
    log().warn("nothing is evicted");
    set_error(host, "the device was lost");
    std::string why = "the reason is text";
    print("this call raises no error");
    throw_error(ErrorKind::input, "x");
}
'''
TEXTS = ["{}: expected a number, found '{}'", "unknown key in 'kv'", 'expected 1 or more',
         'found %u heads', 'the "file" is empty', 'the file is damaged', 'first reason here',
         'second reason here', 'needs {} and {}', 'nothing is evicted', 'the device was lost',
         'the reason is text']
BAD = {'Expected a number': 'begins with a capital', 'the file is bad.': 'ends with a full stop',
       'first\\nsecond line': 'more than one line', 'it works in vain': "has 'in vain'"}


def run(folder, *options):
    result = subprocess.run([sys.executable, SCRIPT, *options, folder], capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout


def fail(why):
    sys.exit(f'list-errors.py: {why}')


with tempfile.TemporaryDirectory() as tree:
    path = os.path.join(tree, 'core', 'f.cpp')
    os.makedirs(os.path.dirname(path))

    def write(text):
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)

    write(SOURCE)
    status, out = run(tree)
    found = [line.split(': ', 1)[1] for line in out.splitlines()]
    if status != 0 or found != TEXTS:
        fail(f'expected {TEXTS}, found {found}')
    if not out.startswith('core/f.cpp:4: '):
        fail(f'expected the line of the first literal, found {out}')
    if run(tree, '--check') != (0, ''):
        fail('--check refused good messages')
    for text, fault in BAD.items():
        write(f'throw_error(ErrorKind::input, "{text}");\n')
        status, out = run(tree, '--check')
        if status != 1 or fault not in out:
            fail(f"expected '{fault}' for '{text}', found '{out}'")
