#include "ops/op_tag.hpp"

#include <catch2/catch.hpp>

using namespace keel;

TEST_CASE("a label names the form, the layer, the role and the part") {
    CHECK(label_text({StepForm::decode, Role::down, 3}) == "decode layer 3: down");
    CHECK(label_text({StepForm::prefill, Role::qkv, 0, 1}) == "prefill layer 0: qkv, part 2");
    CHECK(label_text({StepForm::batch, Role::ffn_norm, 12}) == "batched decode layer 12: ffn norm");
    CHECK(label_text({StepForm::prefill, Role::embed}) == "prefill embedding");
    CHECK(label_text({StepForm::decode, Role::argmax}) == "argmax");
    CHECK(label_text({StepForm::batch, Role::argmax}) == "batched argmax");
    CHECK(label_text({.role = Role::kv_compaction}) == "kv: compaction");
    CHECK(label_text({}) == "op");
}

TEST_CASE("a label ends with its part, and every role has its own name") {
    for (uint8_t i = 0; i < static_cast<uint8_t>(Role::other); ++i) {
        const OpTag tag{StepForm::batch, static_cast<Role>(i), 7, 2};
        INFO(label_text(tag));
        CHECK(label_text(tag).ends_with(part_text(tag)));
        CHECK(part_text(tag).starts_with(role_name(tag.role)));
        for (uint8_t j = 0; j < i; ++j)
            CHECK(std::string(role_name(tag.role)) != role_name(static_cast<Role>(j)));
        CHECK(std::string(role_name(tag.role)) != role_name(Role::other));
    }
}
