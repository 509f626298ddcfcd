// Which shard a process takes, and what a merge checks about builds and machines.
#include "eval/ab/records/machine_kind.hpp"
#include "eval/ab/records/merge.hpp"
#include "eval/ab/run/shard_sources.hpp"
#include "results.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <map>

using namespace keel;
using namespace keel::test;

namespace {

using Environment = std::map<std::string, std::string>;

ab::Shard choose(const Environment &environment, const ab::ShardOptions &options = {}) {
    return ab::choose_shard(options, [&](const char *name) -> const char * {
        const auto at = environment.find(name);
        return at == environment.end() ? nullptr : at->second.c_str();
    });
}

std::string shard_refusal(const Environment &environment, const ab::ShardOptions &options = {}) {
    return error_text([&] { choose(environment, options); }, ErrorKind::usage);
}

Environment slurm(const char *id, const char *count, const char *least, const char *most,
                  const char *step = "1") {
    return {{"SLURM_ARRAY_TASK_ID", id},
            {"SLURM_ARRAY_TASK_COUNT", count},
            {"SLURM_ARRAY_TASK_MIN", least},
            {"SLURM_ARRAY_TASK_MAX", most},
            {"SLURM_ARRAY_TASK_STEP", step}};
}

ab::Header shard_header(uint32_t shard, const std::string &machine) {
    ab::Header h = made_header();
    h.version = "0.1.0";
    h.commit = "abc";
    h.machine = machine + ", 8 processors, 31.0 GiB";
    h.facts = {{"backend", "cpu on " + machine}, {"kernels", "vnni, 8 threads"}};
    h.command = "keel ab run /x/my.yaml --plan /x/p.yaml";
    h.shard = shard;
    h.shards = 4;
    return h;
}

ab::Item speed_item(const std::string &name) {
    return made_item("full", "full", name, 100, "decode_tokens_per_second");
}

} // namespace

TEST_CASE("a Slurm array and a Kubernetes job give a shard") {
    CHECK(choose({}) == ab::Shard{});
    CHECK(choose(slurm("0", "4", "0", "3")) == ab::Shard{1, 4});
    CHECK(choose(slurm("3", "4", "1", "4")) == ab::Shard{3, 4});
    CHECK(choose(slurm("14", "3", "10", "14", "2")) == ab::Shard{3, 3});
    CHECK(choose(slurm("12", "3", "10", "15", "2")) == ab::Shard{2, 3}); // --array=10-15:2
    // One shard runs again: the number of shards is given, and the id is the shard.
    CHECK(choose(slurm("3", "1", "3", "3"), {"", 4}) == ab::Shard{3, 4});
    CHECK(choose({{"JOB_COMPLETION_INDEX", "0"}, {"KEEL_SHARDS", "3"}}) == ab::Shard{1, 3});
    CHECK(choose({{"JOB_COMPLETION_INDEX", "2"}}, {"", 3}) == ab::Shard{3, 3});
    CHECK(choose({{"JOB_COMPLETION_INDEX", "0"}, {"KEEL_SHARDS", "1"}}) == ab::Shard{});
    CHECK(choose({{"KEEL_SHARDS", "4"}}, {"2/4", 4}) == ab::Shard{2, 4});
    CHECK(choose({{"JOB_COMPLETION_INDEX", "1"}}, {"2/4", 0}) == ab::Shard{2, 4});
    CHECK(choose({{"KEEL_SHARDS", "1"}}) == ab::Shard{});
}

TEST_CASE("one shard of one is the whole experiment, whatever the launcher sets") {
    CHECK(choose(slurm("3", "4", "1", "4"), {"1/1", 0}) == ab::Shard{});
    CHECK(choose(slurm("3", "4", "1", "4"), {"", 1}) == ab::Shard{});
}

TEST_CASE("sources that name different shards are refused, and both are named") {
    const Environment mpi = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
    Environment both = slurm("3", "4", "1", "4");
    both.insert(mpi.begin(), mpi.end());
    for (const char *part : {"OMPI_COMM_WORLD_RANK", "SLURM_ARRAY_TASK_ID=3", "(2/4)", "(3/4)"})
        CHECK(contains(shard_refusal(both), part));
    CHECK(contains(shard_refusal(mpi, {"1/4", 0}), "--shard 1/4 (1/4) and OMPI_COMM_WORLD_RANK"));
    CHECK(contains(shard_refusal({{"JOB_COMPLETION_INDEX", "1"}}, {"1/4", 0}),
                   "--shard 1/4 (1/4) and JOB_COMPLETION_INDEX=1 (2/4)"));
    CHECK(contains(shard_refusal({{"KEEL_SHARDS", "3"}}, {"", 4}), "--shards 4 and KEEL_SHARDS=3"));
    CHECK(contains(shard_refusal({{"KEEL_SHARDS", "3"}}, {"1/4", 0}),
                   "KEEL_SHARDS=3 and --shard 1/4"));
    CHECK(contains(shard_refusal(mpi, {"", 3}), "--shards 3 and OMPI_COMM_WORLD_RANK"));
}

TEST_CASE("sources that do not give a shard are refused with what to do") {
    CHECK(contains(shard_refusal({{"JOB_COMPLETION_INDEX", "1"}}), "set KEEL_SHARDS"));
    CHECK(contains(shard_refusal({{"JOB_COMPLETION_INDEX", "3"}}, {"", 3}), "from 0 to 2"));
    CHECK(contains(shard_refusal({}, {"", 3}), "give --shard I/3"));
    CHECK(contains(shard_refusal({{"KEEL_SHARDS", "x"}}), "KEEL_SHARDS=x"));
    CHECK(contains(shard_refusal({{"KEEL_SHARDS", "0"}}), "from 1 to"));
    CHECK(contains(shard_refusal(slurm("3", "1", "3", "3")), "give --shards N"));
    CHECK(contains(shard_refusal(slurm("6", "3", "1", "6")), "an array without gaps"));
    CHECK(contains(shard_refusal(slurm("9", "4", "1", "4")), "an array without gaps"));
    CHECK(contains(shard_refusal(slurm("0", "4", "0", "3"), {"", 4}), "--array=1-4"));
    CHECK(contains(shard_refusal({{"SLURM_ARRAY_TASK_ID", "3"}}), "SLURM_ARRAY_TASK_COUNT"));
    CHECK(contains(shard_refusal(slurm("-1", "4", "0", "3")), "SLURM_ARRAY_TASK_ID=-1"));
    CHECK(contains(shard_refusal(slurm("1", "4", "0", "99999999999999")), "SLURM_ARRAY_TASK_MAX"));
}

TEST_CASE("a merge names each missing shard with the command that runs it") {
    const TempFolder folder;
    write_ab(folder / "1", shard_header(1, "CPU A"), {made_item("full", "full", "0", 1)});
    write_ab(folder / "3", shard_header(3, "CPU A"), {made_item("full", "full", "1", 1)});
    const ab::MergeResult r = ab::merge_shards({folder / "1", folder / "3"}, folder / "out");
    CHECK(r.missing == std::vector<uint32_t>{2, 4});
    CHECK(r.commands ==
          std::vector<std::string>{"keel ab run /x/my.yaml --plan /x/p.yaml --shard 2/4",
                                   "keel ab run /x/my.yaml --plan /x/p.yaml --shard 4/4"});
    CHECK(r.notes.empty());
    CHECK(ab::read_header(folder / "out/results.jsonl").missing_shards == 2);
}

TEST_CASE("shards of another build are refused, of other machines only for speeds") {
    const TempFolder folder;
    const auto merge = [&](const ab::Header &first, const ab::Header &second, bool speeds) {
        static int number = 0;
        const auto place = folder / fmt::format("m{}", number++);
        std::vector<ab::Record> a = {made_item("full", "full", "0", 1)},
                                b = {made_item("full", "full", "1", 1)};
        a.emplace_back(speed_item("round 0"));
        if (speeds) b.emplace_back(speed_item("round 1"));
        write_ab(place / "1", first, a);
        write_ab(place / "2", second, b);
        return ab::merge_shards({place / "1", place / "2"}, place / "out");
    };
    const ab::Header one = shard_header(1, "CPU A"), two = shard_header(2, "CPU A"),
                     other = shard_header(2, "CPU B");
    CHECK(merge(one, two, true).notes.empty());
    ab::Header memory = two;
    memory.machine = "CPU A, 4 processors, 15.0 GiB";
    CHECK(merge(one, memory, true).notes.empty());
    const auto notes = merge(one, other, false).notes;
    REQUIRE(notes.size() == 1);
    CHECK(contains(notes[0], "different machines"));
    CHECK(contains(notes[0], "CPU B; cpu on CPU B; vnni"));
    CHECK(contains(error_text([&] { merge(one, other, true); }), "speeds of different machines"));
    ab::Header set = two;
    set.facts[1].second = "avx2, 8 threads";
    CHECK(contains(merge(one, set, false).notes.at(0), "avx2"));
    ab::Header build = two;
    build.commit = "def";
    CHECK(contains(error_text([&] { merge(one, build, false); }), "run all shards with one build"));
}

TEST_CASE("a machine's text gives its processor") {
    CHECK(ab::processor_of("AMD EPYC 9654, 8 processors, 31.0 GiB") == "AMD EPYC 9654");
    CHECK(ab::processor_of("A, B, 8 processors, 31.0 GiB") == "A, B");
    CHECK(ab::processor_of("").empty());
    CHECK(ab::processor_of("x") == "x");
    CHECK(ab::joined_machines("A, 1, 2", "B, 1, 2") == "A, 1, 2; B, 1, 2");
    CHECK(ab::joined_machines("A, 1, 2; B, 1, 2", "B, 1, 2") == "A, 1, 2; B, 1, 2");
}
