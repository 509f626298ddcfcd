// The smallest program that uses Keel as a library. It prints text while the text is generated, and
// shows errors.
#include <keel/keel.hpp>

#include <cstdio>
#include <string>

namespace {

void print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fputs("usage: hello MODEL [PROMPT]\n", stderr);
        return 2;
    }
    try {
        keel::api::Pipeline pipeline(argv[1], {"model.context=256"});
        keel::api::Session session(pipeline);

        keel::api::Generation options = pipeline.defaults();
        options.max_tokens = 40;
        options.seed = 7;
        options.on_text = print;
        const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
        print(prompt);
        const keel::api::Result result = session.generate(prompt, options);
        std::printf("\n[%zu tokens", result.ids.size());
        // The time for the first token is part of the time for the prompt. So no speed can be
        // computed for a text of one token.
        if (const keel::api::Stats stats = session.stats(); stats.decode_seconds > 0)
            std::printf(", %.0f a second",
                        static_cast<double>(stats.decode_tokens) / stats.decode_seconds);
        std::printf("]\n");

        // Generates more text after the text so far. This call can be repeated.
        print("... ");
        session.generate("", options);
        print("\n");
        return 0;
    } catch (const keel::api::Error &error) {
        std::fprintf(stderr, "hello: %s\n", error.what());
        return 1;
    }
}
