#!/bin/sh
# Checks the rules of CONTRIBUTING.md that a script can check: formatting, file sizes, links,
# includes, and that libraries do not print or abort.
set -u
cd "$(dirname "$0")/.."
failed=0
complain() { printf '%s\n' "$1"; failed=1; }

sources=$(git ls-files '*.c' '*.h' '*.cpp' '*.hpp' '*.inl')
unformatted=$(printf '%s\n' "$sources" | grep -v '\.inl$' | xargs -r clang-format --dry-run 2>&1 |
    sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: warning: code should be clang-formatted.*/\1/p' | sort -u)
[ -z "$unformatted" ] || complain "not formatted (clang-format -i):
$unformatted"

sizes=$(scripts/check-sizes.sh) || complain "$sizes"

links=$(scripts/check-links.sh) || complain "links that lead nowhere:
$links"

words=$(scripts/check-words.sh) || complain "words that readers must read twice:
$words"

if command -v python3 >/dev/null; then
    errors=$(scripts/list-errors.py --check) || complain "error messages of the wrong form:
$errors"
else
    echo "$0: SKIPPED: the check of error messages, because python3 is not installed" >&2
fi

libraries=$(git ls-files 'core/*.c*' 'core/*.h*' 'eval/*.c*' 'eval/*.h*' 'server/*.c*' 'server/*.h*' 'plugins/*.c*' 'plugins/*.h*' 'policies/*.c*')
loud=$(printf '%s\n' "$libraries" | xargs -r grep -nE '(^|[^A-Za-z0-9_.:>"])(printf|fprintf|vfprintf|puts|fputs|putchar|abort|exit|_exit|_Exit|assert) *\(|std::(cout|cerr|clog|abort|exit|terminate|fprintf)' | grep -vE '^[^:]*:[0-9]+: *(//|\*|/\*)')
[ -z "$loud" ] || complain "library code that prints, exits, aborts or asserts:
$loud"

reach=$(git ls-files 'policies/*' | grep -E '\.(c|h|cpp|hpp|inl)$' | xargs -r grep -nE '#include "[^"]*/')
[ -z "$reach" ] || complain "policies that include something beside their own folder and <keel/...>:
$reach"

layers=$(scripts/check-layers.sh) || complain "includes that scripts/check-layers.sh does not allow:
$layers"

named=$(git ls-files 'core/*.h' 'core/*.hpp' 'core/*.cpp' | xargs -r grep -nliE 'vulkan|opencl' | grep -v '^core/include/')
[ -z "$named" ] || complain "core files that name a backend: $named"

# CMake splits lists at semicolons. So ctest would search for two cases that do not exist.
cut=$(git ls-files 'tests/*.cpp' | xargs -r grep -nE '^(TEST_CASE\(|    )"[^"]*;[^"]*"\) \{')
[ -z "$cut" ] || complain "names of tests with a semicolon, which ctest cannot run: $cut"

# Other C libraries (Android's, musl) do not have these functions. core/platform may use them,
# because it checks whether they exist.
glibc=$(git ls-files '*.c' '*.h' '*.cpp' '*.hpp' '*.inl' | grep -v '^core/platform/' | xargs -r grep -nE '\b(malloc_trim|mallinfo2?|mallopt|malloc_usable_size|pthread_[sg]etaffinity_np|pthread_(timed|try)join_np|secure_getenv|program_invocation_(short_)?name|backtrace(_symbols)?|canonicalize_file_name|get_current_dir_name|strverscmp|fopencookie|gnu_get_libc_version|error_at_line|str(error|sig)(name|desc|abbrev)_np|qsort_r) *\(|#include <(execinfo|argp|obstack|error|gnu/[a-z-]+|gconv|printf)\.h>|__GLIBC__')
[ -z "$glibc" ] || complain "calls of glibc outside core/platform: $glibc"

[ $failed = 0 ] && echo "source rules: ok"
exit $failed
