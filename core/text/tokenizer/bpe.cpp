#include "text/tokenizer/bpe.hpp"

#include "text/utf8.hpp"

#include <algorithm>

namespace keel {

namespace {

struct Alphabet {
    std::array<std::string, 256> symbols;
    std::array<std::int16_t, 512> bytes{}; // code point -> byte; -1: none
};

Alphabet make_alphabet() {
    Alphabet a;
    a.bytes.fill(-1);
    char32_t extra = 256;
    for (unsigned b = 0; b < 256; ++b) {
        const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const char32_t symbol = printable ? static_cast<char32_t>(b) : extra++;
        append_utf8(a.symbols[b], symbol);
        a.bytes[symbol] = static_cast<std::int16_t>(b);
    }
    return a;
}

const Alphabet &alphabet() {
    static const Alphabet a = make_alphabet();
    return a;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
}

// Order of the heap: its top is the pair with the lowest rank. If several pairs have this rank, the
// top is the leftmost pair.
bool comes_later(const MergeScratch::Candidate &a, const MergeScratch::Candidate &b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

} // namespace

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
    std::string bytes;
    for (std::size_t at = 0; at < symbols.size();) {
        const char32_t c = next_code_point(symbols, at);
        if (c >= alphabet().bytes.size() || alphabet().bytes[c] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(alphabet().bytes[c]));
    }
    return bytes;
}

const std::string &symbol_of_byte(unsigned char byte) { return alphabet().symbols[byte]; }

void MergeTable::add(std::int32_t left, std::int32_t right, std::uint32_t rank,
                     std::int32_t merged) {
    rules_.put(pair_key(left, right),
               (static_cast<std::uint64_t>(rank) << 32) | static_cast<std::uint32_t>(merged));
}

std::size_t Bpe::missing_bytes() const noexcept {
    return static_cast<std::size_t>(std::count(byte_ids_.begin(), byte_ids_.end(), -1));
}

// If a rule merges the pair that begins at `position`, adds the pair to the candidates. The caller
// restores the heap.
void MergeTable::push_pair(MergeScratch &scratch, std::int32_t position) const {
    const MergeScratch::Symbol &left = scratch.symbols[static_cast<std::size_t>(position)];
    if (left.next < 0) return;
    const std::uint64_t *rule =
        rules_.find(pair_key(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id));
    if (rule == nullptr) return;
    scratch.heap.push_back({static_cast<std::uint32_t>(*rule >> 32),
                            static_cast<std::uint32_t>(position),
                            static_cast<std::int32_t>(*rule & 0xFFFFFFFFU)});
}

void MergeTable::merge(MergeScratch &scratch) const {
    auto &symbols = scratch.symbols;
    auto &heap = scratch.heap;
    heap.clear();
    for (std::size_t i = 0; i < symbols.size(); ++i)
        push_pair(scratch, static_cast<std::int32_t>(i));
    std::make_heap(heap.begin(), heap.end(), comes_later);

    const auto offer = [&](std::int32_t position) {
        const std::size_t before = heap.size();
        push_pair(scratch, position);
        if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), comes_later);
    };
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), comes_later);
        const MergeScratch::Candidate best = heap.back();
        heap.pop_back();
        MergeScratch::Symbol &left = symbols[best.position];
        if (left.gone || left.next < 0) continue;
        MergeScratch::Symbol &right = symbols[static_cast<std::size_t>(left.next)];
        // The pair can have changed since it was added. As in Hugging Face tokenizers, the check
        // compares the result of the merge and not the rule.
        const std::uint64_t *rule = rules_.find(pair_key(left.id, right.id));
        if (rule == nullptr || static_cast<std::int32_t>(*rule & 0xFFFFFFFFU) != best.id) continue;
        left.id = best.id;
        left.next = right.next;
        right.gone = true;
        const auto position = static_cast<std::int32_t>(best.position);
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = position;
        if (left.previous >= 0) offer(left.previous);
        offer(position);
    }
}

void Bpe::fill_symbols(std::string_view word, MergeScratch &scratch) const {
    scratch.symbols.clear();
    bool last_unknown = false;
    for (const char c : word) {
        const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
        if (id < 0) {
            if (unknown_ < 0 || (fuse_unknown_ && last_unknown)) continue;
        }
        last_unknown = id < 0;
        scratch.push(id < 0 ? unknown_ : id);
    }
}

void Bpe::encode(std::string_view word, MergeScratch &scratch,
                 std::vector<std::int32_t> &out) const {
    if (!whole_words_.empty()) {
        if (const auto it = whole_words_.find(word); it != whole_words_.end()) {
            out.push_back(it->second);
            return;
        }
    }
    fill_symbols(word, scratch);
    merges_.merge(scratch);
    const auto &symbols = scratch.symbols;
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;
         i = symbols[static_cast<std::size_t>(i)].next)
        out.push_back(symbols[static_cast<std::size_t>(i)].id);
}

} // namespace keel
