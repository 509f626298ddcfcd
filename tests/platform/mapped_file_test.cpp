#include "platform/mapped_file.hpp"
#include "platform/memory.hpp"
#include "support/error_text.hpp"
#include "support/skip.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;
using keel::test::TempFolder;

namespace {

std::string text_of(const MappedFile &file) {
    return {reinterpret_cast<const char *>(file.bytes().data()), file.bytes().size()};
}

} // namespace

TEST_CASE("a mapped file shows the file's bytes") {
    const TempFolder folder;
    const MappedFile file(folder.write("data", "hello"));
    CHECK(file.size() == 5);
    CHECK(text_of(file) == "hello");
    CHECK(file.path() == (folder / "data").string());
}

TEST_CASE("an empty file maps to an empty view") {
    const TempFolder folder;
    const MappedFile file(folder.write("empty", ""));
    CHECK(file.size() == 0);
    CHECK(file.bytes().empty());
    file.advise(MappedFile::Advice::sequential);
    file.drop(0, MappedFile::to_end);
}

TEST_CASE("a mapping exists longer than the name of its file, and moves with its object") {
    const TempFolder folder;
    MappedFile first(folder.write("data", "kept"));
    std::filesystem::remove(folder / "data");
    MappedFile second(std::move(first));
    CHECK(text_of(second) == "kept");
    MappedFile third(folder.write("other", "replaced"));
    third = std::move(second);
    CHECK(text_of(third) == "kept");
}

TEST_CASE("a file that cannot be read is refused with its path and the reason") {
    const TempFolder folder;
    CHECK_THAT(error_text([&] { MappedFile file(folder / "absent"); }),
               Contains((folder / "absent").string()) && Contains("No such file"));
    CHECK_THAT(error_text([&] { MappedFile file(folder.path()); }),
               Contains(folder.path().string()) && Contains("expected a file, found a folder"));
    const auto pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THAT(error_text([&] { MappedFile file(pipe); }),
               Contains("pipe") && Contains("regular file"));
}

TEST_CASE("advice and drop keep the content, for any range") {
    const TempFolder folder;
    std::string content(5 * page_size() + 123, 'x');
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i % 23);
    const MappedFile file(folder.write("data", content));
    using Advice = MappedFile::Advice;
    for (const Advice advice :
         {Advice::sequential, Advice::random, Advice::will_need, Advice::normal}) {
        file.advise(advice);
        file.advise(advice, 1, 2);
        file.advise(advice, content.size() + 5, 1);
        file.advise(advice, 7, MappedFile::to_end);
    }
    REQUIRE(text_of(file) == content);
    const uint64_t page = page_size();
    for (const uint64_t offset :
         {uint64_t{0}, uint64_t{1}, page, page + 1, 5 * page, 5 * page + 123, MappedFile::to_end}) {
        for (const uint64_t length : {uint64_t{0}, uint64_t{1}, page, 3 * page, MappedFile::to_end})
            file.drop(offset, length);
    }
    CHECK(text_of(file) == content);
}

TEST_CASE("drop returns the pages of a used range to the system") {
    const TempFolder folder;
    constexpr uint64_t size = uint64_t{64} << 20;
    const MappedFile file(folder.write("data", std::string(size, 'k')));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < size; i += page_size()) sum += static_cast<uint64_t>(file.bytes()[i]);
    REQUIRE(sum == size / page_size() * 'k');
    const uint64_t before = resident_bytes();
    file.drop(0, size);
    const uint64_t after = resident_bytes();
    if (before < size) test::skip("this system does not count mapped files as resident memory");
    CHECK(before - after > size / 2);
}
