#include "format/gguf_writer.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace keel {
namespace {

namespace fs = std::filesystem;

template <typename T> void append(std::string &to, T value) {
    to.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append_text(std::string &to, std::string_view text) {
    append(to, static_cast<uint64_t>(text.size()));
    to.append(text);
}

// Tensor data begins at multiples of 32 bytes. This is the alignment of a file that does not give
// another one.
uint64_t aligned(uint64_t bytes) { return (bytes + 31) / 32 * 32; }

} // namespace

GgufWriter::GgufWriter(fs::path target) : target_(std::move(target)) {}

GgufWriter::~GgufWriter() = default;

void GgufWriter::key(std::string_view key, GgufType type) {
    append_text(metadata_, key);
    append(metadata_, static_cast<uint32_t>(type));
    ++keys_;
}

void GgufWriter::array(std::string_view name, GgufType element, uint64_t count) {
    key(name, GgufType::array);
    append(metadata_, static_cast<uint32_t>(element));
    append(metadata_, count);
}

void GgufWriter::add(std::string_view name, std::string_view text) {
    key(name, GgufType::string);
    append_text(metadata_, text);
}

void GgufWriter::add(std::string_view name, uint32_t value) {
    key(name, GgufType::u32);
    append(metadata_, value);
}

void GgufWriter::add(std::string_view name, float value) {
    key(name, GgufType::f32);
    append(metadata_, value);
}

void GgufWriter::add(std::string_view name, bool value) {
    key(name, GgufType::boolean);
    append(metadata_, static_cast<uint8_t>(value));
}

void GgufWriter::add(std::string_view name, std::span<const std::string> texts) {
    array(name, GgufType::string, texts.size());
    for (const std::string &text : texts) append_text(metadata_, text);
}

void GgufWriter::add(std::string_view name, std::span<const int32_t> values) {
    array(name, GgufType::i32, values.size());
    for (const int32_t value : values) append(metadata_, value);
}

void GgufWriter::add(std::string_view name, std::span<const float> values) {
    array(name, GgufType::f32, values.size());
    for (const float value : values) append(metadata_, value);
}

void GgufWriter::copy(const GgufFile &from, const GgufEntry &entry) {
    if (entry.is_array()) {
        array(entry.key, entry.element, entry.count);
    } else {
        key(entry.key, entry.type);
    }
    const auto raw = from.raw(entry);
    metadata_.append(reinterpret_cast<const char *>(raw.data()), raw.size());
}

void GgufWriter::add_tensor(std::string_view name, uint32_t type, std::span<const int64_t> shape) {
    const GgmlType &row = *find_ggml_type(type);
    append_text(infos_, name);
    append(infos_, static_cast<uint32_t>(shape.size()));
    uint64_t elements = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        append(infos_, shape[i]);
        elements *= static_cast<uint64_t>(shape[i]);
    }
    append(infos_, type);
    append(infos_, data_bytes_);
    tensors_.push_back({std::string(name), elements / row.block * row.bytes});
    data_bytes_ += aligned(tensors_.back().bytes);
}

uint64_t GgufWriter::header_bytes() const {
    return 4 + 4 + 8 + 8 + metadata_.size() + infos_.size();
}

uint64_t GgufWriter::file_bytes() const { return aligned(header_bytes()) + data_bytes_; }

void GgufWriter::put(const void *data, uint64_t bytes) {
    out_->write({static_cast<const std::byte *>(data), static_cast<size_t>(bytes)});
}

void GgufWriter::pad(uint64_t bytes) {
    const std::array<char, 4096> zeros{};
    for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, zeros.size()))
        put(zeros.data(), std::min<uint64_t>(bytes, zeros.size()));
}

void GgufWriter::begin() {
    out_.emplace(target_, NewFile::Readers::as_usual);
    std::string head = "GGUF";
    append(head, uint32_t{3});
    append(head, static_cast<uint64_t>(tensors_.size()));
    append(head, keys_);
    put(head.data(), head.size());
    put(metadata_.data(), metadata_.size());
    put(infos_.data(), infos_.size());
    pad(aligned(header_bytes()) - header_bytes());
}

void GgufWriter::write(std::span<const std::byte> data) {
    while (!data.empty()) {
        if (next_ == tensors_.size())
            throw_error(ErrorKind::internal,
                        "{}: more data was written than the tensors of the file can hold",
                        target_.string());
        const Declared &tensor = tensors_[next_];
        const auto piece =
            static_cast<size_t>(std::min<uint64_t>(data.size(), tensor.bytes - written_));
        put(data.data(), piece);
        data = data.subspan(piece);
        written_ += piece;
        if (written_ < tensor.bytes) continue;
        pad(aligned(tensor.bytes) - tensor.bytes);
        written_ = 0;
        ++next_;
    }
}

void GgufWriter::finish() {
    if (next_ != tensors_.size())
        throw_error(ErrorKind::internal, "{}: tensor '{}' has no data", target_.string(),
                    tensors_[next_].name);
    out_->publish();
}

} // namespace keel
