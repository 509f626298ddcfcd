// Input: a matrix of benchmarks. It gives either an error of one line, or a list of runs. Each run
// has a name, a key and a file name.
#include "base/error.hpp"
#include "eval/bench/matrix/matrix.hpp"
#include "memory_file.hpp"

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const MemoryFile file(data, size);
    try {
        const keel::BenchMatrix matrix = keel::load_matrix(file.path(), "cpu");
        const std::vector<keel::MatrixRun> runs = keel::matrix_runs(matrix);
        if (runs.empty()) std::abort();
        for (size_t i = 0; i < runs.size() && i < 64; ++i) {
            const std::string key = runs[i].key(matrix, "here");
            if (key.size() != 16 || runs[i].name().empty()) std::abort();
            const std::string name = runs[i].file_name(key);
            if (name.find('/') != std::string::npos || name.front() == '.') std::abort();
            (void)runs[i].fault(
                keel::PlacedError(keel::ErrorKind::input, {"--set kv.dtype"}, "wrong"));
        }
    } catch (const keel::Error &error) {
        const std::string_view message = error.what();
        if (message.empty() || message.find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}
