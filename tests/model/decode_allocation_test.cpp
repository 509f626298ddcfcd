// Steps of a warm pipeline allocate nothing, whatever the architecture adds to a layer. Counts every operator new of this program.

#include "pipeline/session.hpp"
#include "support/arch_miniature.hpp"
#include "support/count_allocations.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

TEST_CASE("a decode step allocates no memory, with and without what Gemma adds to a layer") {
    for (const std::string name : {"llama_biases", "gemma2", "gemma3"}) {
        INFO(name);
        const TempFolder folder;
        write_miniature(folder.path(), read_miniature(name));
        PipelineOptions options;
        options.need_tokenizer = false;
        const std::vector<std::string> sets{"model.path=" + folder.path().string(), "backend.plugin=cpu",
                                            "strict=true"};
        Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        Session session(pipeline);
        const std::vector<int32_t> prompt(20, 7);
        session.prefill(prompt);
        session.decode(9);
        (void)session.logits();
        uint64_t in_steps = 0;
        for (int i = 0; i < 30; ++i) { // inside a cache block
            const uint64_t before = allocations();
            session.decode(session.greedy());
            (void)session.logits();
            in_steps += allocations() - before;
        }
        CHECK(in_steps == 0);
    }
}
