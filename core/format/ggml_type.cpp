#include "format/ggml_type.hpp"

#include <algorithm>
#include <array>

namespace keel {
namespace {

// All types that current files can have. Types with which Keel does not compute are listed too, so
// an error can name them.
constexpr std::array types = {
    GgmlType{ggml::f32, "F32", 1, 4},
    GgmlType{ggml::f16, "F16", 1, 2},
    GgmlType{ggml::q4_0, "Q4_0", 32, 18},
    GgmlType{ggml::q4_1, "Q4_1", 32, 20},
    GgmlType{ggml::q5_0, "Q5_0", 32, 22},
    GgmlType{ggml::q5_1, "Q5_1", 32, 24},
    GgmlType{ggml::q8_0, "Q8_0", 32, 34},
    GgmlType{9, "Q8_1", 32, 36},
    GgmlType{10, "Q2_K", 256, 84},
    GgmlType{11, "Q3_K", 256, 110},
    GgmlType{ggml::q4_k, "Q4_K", 256, 144},
    GgmlType{ggml::q5_k, "Q5_K", 256, 176},
    GgmlType{ggml::q6_k, "Q6_K", 256, 210},
    GgmlType{15, "Q8_K", 256, 292},
    GgmlType{16, "IQ2_XXS", 256, 66},
    GgmlType{17, "IQ2_XS", 256, 74},
    GgmlType{18, "IQ3_XXS", 256, 98},
    GgmlType{19, "IQ1_S", 256, 50},
    GgmlType{20, "IQ4_NL", 32, 18},
    GgmlType{21, "IQ3_S", 256, 110},
    GgmlType{22, "IQ2_S", 256, 82},
    GgmlType{23, "IQ4_XS", 256, 136},
    GgmlType{24, "I8", 1, 1},
    GgmlType{25, "I16", 1, 2},
    GgmlType{26, "I32", 1, 4},
    GgmlType{27, "I64", 1, 8},
    GgmlType{28, "F64", 1, 8},
    GgmlType{29, "IQ1_M", 256, 56},
    GgmlType{ggml::bf16, "BF16", 1, 2},
    GgmlType{34, "TQ1_0", 256, 54},
    GgmlType{35, "TQ2_0", 256, 66},
    GgmlType{39, "MXFP4", 32, 17},
};

} // namespace

const GgmlType *find_ggml_type(uint32_t id) {
    const auto found = std::find_if(types.begin(), types.end(),
                                    [&](const GgmlType &type) { return type.id == id; });
    return found == types.end() ? nullptr : &*found;
}

} // namespace keel
