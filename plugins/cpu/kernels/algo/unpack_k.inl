// Converts q4_k, q5_k and q6_k weights to f32: rows for the op embed, panels for matmul_any_f32.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// The words of one block of a row. The row is stored alone, or interleaved with R - 1 other rows.
struct KWords {
    const uint8_t *at;
    int64_t stride; // bytes from one word to the next

    uint32_t word(int i) const {
        uint32_t w;
        memcpy(&w, at + i * stride, 4);
        return w;
    }
    uint32_t byte(int i) const { return at[i / 4 * stride + i % 4]; }
};

// Converts a block to 256 floats, which are stored `stride` floats apart.
template <WeightType T>
static void decode_k_block(uint16_t d_bits, uint16_t least_bits, KWords words, float *out,
                           int64_t stride) {
    constexpr KForm form = k_form(T);
    const float d = f16_to_f32(d_bits), least = f16_to_f32(least_bits);
    for (int chunk = 0; chunk < 8; ++chunk, out += 32 * stride) {
        const int pair = form.scale_words + chunk / 2 * form.pair_words();
        const int upper_at = pair + chunk % 2 * form.upper_words,
                  nibbles_at = pair + 2 * form.upper_words;
        float scale[2], add = 0.0f;
        if (T == WeightType::q6_k) {
            for (int h = 0; h < 2; ++h)
                scale[h] = d * static_cast<float>(static_cast<int8_t>(words.byte(2 * chunk + h)));
        } else {
            const int c = chunk % 4;
            const uint32_t a = words.byte(c), b = words.byte(4 + c), both = words.byte(8 + c);
            const uint32_t s = chunk < 4 ? a & 63u : (both & 15u) | a >> 6 << 4;
            const uint32_t z = chunk < 4 ? b & 63u : both >> 4 | b >> 6 << 4;
            scale[0] = scale[1] = d * static_cast<float>(s);
            add = -(least * static_cast<float>(z));
        }
        for (int p = 0; p < 8; ++p) {
            const uint32_t nibbles = words.word(nibbles_at + p) >> (4 * (chunk % 2));
            uint32_t upper = 0;
            if (T == WeightType::q5_k) upper = words.word(upper_at) >> p << 4 & 0x10101010u;
            if (T == WeightType::q6_k)
                upper = words.word(upper_at + p / 4) >> (2 * (p % 4)) << 4 & 0x30303030u;
            const uint32_t four = (nibbles & 0x0f0f0f0fu) | upper;
            for (int j = 0; j < 4; ++j) {
                const int32_t q =
                    static_cast<int32_t>(four >> 8 * j & 63u) - (T == WeightType::q6_k ? 32 : 0);
                out[(4 * p + j) * stride] = scale[p / 4] * static_cast<float>(q) + add;
            }
        }
    }
}

static void decode_k(WeightType type, uint16_t d, uint16_t least, KWords words, float *out,
                     int64_t stride) {
    if (type == WeightType::q4_k)
        decode_k_block<WeightType::q4_k>(d, least, words, out, stride);
    else if (type == WeightType::q5_k)
        decode_k_block<WeightType::q5_k>(d, least, words, out, stride);
    else
        decode_k_block<WeightType::q6_k>(d, 0, words, out, stride);
}

// Converts columns i .. i + n - 1 (whole blocks) of a row in the layout of the file.
static void unpack_k_stored(WeightType type, const uint8_t *row, int64_t i, int64_t n, float *out,
                            int64_t stride) {
    for (int64_t b = i / k_columns; b < (i + n) / k_columns; ++b, out += k_columns * stride) {
        KBlock block = {};
        arrange_k_block(type, row + b * k_form(type).bytes(), block);
        decode_k(type, block.halves[0], block.halves[1],
                 {reinterpret_cast<const uint8_t *>(block.words), 4}, out, stride);
    }
}

// Converts one row of a group.
static void unpack_k_row(const WeightView &w, int64_t row, float *out) {
    const KForm form = k_form(w.type);
    const int64_t lane = row % R;
    const uint8_t *p = w.packed + row / R * w.group_bytes;
    for (int64_t b = 0; b < w.cols / k_columns; ++b, p += R * form.bytes(), out += k_columns) {
        uint16_t d, least = 0;
        memcpy(&d, p + 2 * lane, 2);
        if (form.halves == 2) memcpy(&least, p + 2 * (R + lane), 2);
        decode_k(w.type, d, least, {p + 2 * R * form.halves + 4 * lane, 4 * R}, out, 1);
    }
}

template <WeightType T, bool High, int P>
KEEL_SIMD void store_codes(const uint8_t *nibbles, const I *upper, const KScales &s, int chunk,
                           float *out, int64_t stride) {
    if constexpr (P < 8) {
        const I u = codes<T, High, P>(nibbles, upper);
        for (int byte = 0; byte < 4; ++byte)
            group_store(out + (4 * P + byte) * stride, k_value<T, P>(u, byte, s, chunk));
        store_codes<T, High, P + 1>(nibbles, upper, s, chunk, out, stride);
    }
}

template <WeightType T, bool High>
static void unpack_chunk(const uint8_t *upper_words, const uint8_t *nibbles, const KScales &s,
                         int chunk, float *out, int64_t stride) {
    I upper[2];
    for (int i = 0; i < k_form(T).upper_words; ++i)
        upper[i] = load_bytes(upper_words + 4 * R * i);
    store_codes<T, High, 0>(nibbles, upper, s, chunk, out, stride);
}

// Converts columns k0 .. k0 + n - 1 (whole blocks) of a group to out[column][row]. Columns of `out`
// are `stride` floats apart.
template <WeightType T>
static void unpack_k_columns(const WeightView &w, int64_t g, int64_t k0, int64_t n, float *out,
                             int64_t stride) {
    constexpr int64_t upper_bytes = 4 * R * k_form(T).upper_words,
                      pair_bytes = 4 * R * k_form(T).pair_words();
    const uint8_t *p = w.packed + g * w.group_bytes + k0 / k_columns * k_group_bytes<T>;
    for (int64_t b = 0; b < n / k_columns; ++b, p += k_group_bytes<T>) {
        KScales s;
        read_scales<T>(p, s);
        const uint8_t *pair = p + k_pairs_at<T>;
        for (int i = 0; i < 4; ++i, pair += pair_bytes, out += 64 * stride) {
            const uint8_t *nibbles = pair + 2 * upper_bytes;
            unpack_chunk<T, false>(pair, nibbles, s, 2 * i, out, stride);
            unpack_chunk<T, true>(pair + upper_bytes, nibbles, s, 2 * i + 1, out + 32 * stride,
                                  stride);
        }
    }
}

static void unpack_k_group(const WeightView &w, int64_t g, int64_t k0, int64_t n, float *out,
                           int64_t stride) {
    if (w.type == WeightType::q4_k)
        unpack_k_columns<WeightType::q4_k>(w, g, k0, n, out, stride);
    else if (w.type == WeightType::q5_k)
        unpack_k_columns<WeightType::q5_k>(w, g, k0, n, out, stride);
    else
        unpack_k_columns<WeightType::q6_k>(w, g, k0, n, out, stride);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
