// Input: the bytes that a client sends on one connection. The reader must not read past a limit,
// must give the same requests if the bytes come one by one, and must stop after an error.
#include "server/http/request_reader.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using keel::server::HttpLimits;
using keel::server::HttpRequest;
using keel::server::RequestReader;

namespace {

constexpr size_t most_requests = 100;

// All requests of the bytes as one text, with the status of the error that ended them. `piece`:
// the number of bytes that arrive together.
std::string read_all(std::string_view bytes, size_t piece) {
    HttpLimits limits;
    limits.header_bytes = 512;
    limits.body_bytes = 1024;
    RequestReader reader(limits);
    boost::beast::flat_buffer buffer;
    std::string found;
    size_t requests = 0;
    while (!bytes.empty()) {
        const size_t n = std::min(piece, bytes.size());
        std::copy_n(bytes.data(), n, static_cast<char *>(buffer.prepare(n).data()));
        buffer.commit(n);
        bytes.remove_prefix(n);
        bool goes_on = true;
        while (goes_on && buffer.size() > 0) {
            const RequestReader::Step step = reader.read(buffer);
            if (step == RequestReader::Step::failed)
                return found + "error " + std::to_string(reader.error().status);
            goes_on = step != RequestReader::Step::needs_more;
            if (!reader.is_complete()) continue;
            const HttpRequest request = reader.take();
            if (request.body.size() > limits.body_bytes || request.path.empty()) std::abort();
            found += request.method + " " + request.path + "?" + request.query + "\n" +
                     request.body + "\n";
            if (++requests == most_requests) return found;
        }
        // what cannot be used yet is at most the beginning of a header or of a chunk
        if (buffer.size() > limits.header_bytes + piece) std::abort();
    }
    return found;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char *>(data), size);
    const std::string whole = read_all(bytes, 300);
    if (size <= 2000 &&
        read_all(bytes, 1).substr(0, whole.find("error")) != whole.substr(0, whole.find("error")))
        std::abort();
    return 0;
}
