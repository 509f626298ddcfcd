#include "convert/gguf_export.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "convert/export_item.hpp"
#include "convert/gguf_write.hpp"
#include "model/model_tensors.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

// bytes of f32 values that are read and written at once
constexpr uint64_t piece_bytes = uint64_t{16} << 20;

// Returns the GGML type in which weights of `type` are written. Throws Error(usage) if GGML has no
// such type.
uint32_t stored_type(keel_dtype type) {
    switch (type) {
    case KEEL_DTYPE_F32: return ggml::f32;
    case KEEL_DTYPE_F16: return ggml::f16;
    case KEEL_DTYPE_BF16: return ggml::bf16;
    case KEEL_DTYPE_Q8_0: return ggml::q8_0;
    case KEEL_DTYPE_Q4_0: return ggml::q4_0;
    default:
        throw_error(ErrorKind::usage,
                    "weights cannot be written as {}; supported: f32, f16, bf16, q8_0, q4_0",
                    keel_dtype_name(type));
    }
}

struct Sums {
    double squared_error = 0, max_abs = 0, squares = 0;
    void add(const Sums &other) {
        squared_error += other.squared_error;
        max_abs = std::max(max_abs, other.max_abs);
        squares += other.squares;
    }
};

class Exporter {
  public:
    Exporter(const ModelSource &source, const fs::path &to, const ExportOptions &options)
        : source_(source), to_(to), options_(options), from_gguf_(!fs::is_directory(source.path())),
          out_(to) {}

    ExportReport run() {
        check_target();
        check_model();
        items_ = export_items(source_, options_.type);
        for (const ExportItem &item : items_) total_ += item.stored_bytes();
        check_space();
        add_model();
        for (const ExportItem &item : items_)
            out_.add_tensor(item.name, stored_type(item.type), shape(item));
        out_.begin();
        for (const ExportItem &item : items_) write(item);
        out_.finish();
        report_.file_bytes = out_.file_bytes();
        return std::move(report_);
    }

  private:
    void check_target() const {
        const std::string shown = printable(to_.string(), 400);
        std::error_code error;
        const fs::path folder = to_.has_parent_path() ? to_.parent_path() : fs::path(".");
        if (!fs::is_directory(folder, error))
            throw_error(
                ErrorKind::usage,
                "{}: cannot be written, because the folder '{}' does not exist; create it first",
                shown, printable(folder.string(), 400));
        if (!fs::exists(fs::symlink_status(to_, error))) return;
        if (fs::is_directory(to_, error))
            throw_error(ErrorKind::usage,
                        "{}: expected the name of a file to write, found a folder", shown);
        if (fs::exists(to_, error) && !fs::is_regular_file(to_, error))
            throw_error(ErrorKind::usage, "{}: exists and is not a regular file; give another name",
                        shown);
        for (size_t i = 0; i < source_.file_count(); ++i) {
            if (fs::equivalent(source_.file(i).path(), to_, error))
                throw_error(ErrorKind::usage,
                            "{}: this file is the model to convert, so it cannot be the output; "
                            "give another name",
                            shown);
        }
        if (!options_.overwrite)
            throw_error(ErrorKind::usage,
                        "{}: the file exists; give another name, or use --force to replace it",
                        shown);
    }

    void check_model() {
        (void)stored_type(options_.type);
        report_.left_out = check_model_tensors(source_);
    }

    void add_model() {
        if (from_gguf_) {
            gguf::copy_metadata(GgufFile(source_.path()), options_.type, out_);
            return;
        }
        gguf::add_model_metadata(source_, options_.type, out_);
        if (options_.tokenizer)
            gguf::add_tokenizer_metadata(source_.path(), source_.config(), out_);
    }

    void check_space() const {
        std::error_code error;
        const fs::space_info space =
            fs::space(to_.has_parent_path() ? to_.parent_path() : fs::path("."), error);
        uint64_t bytes = 0;
        for (const ExportItem &item : items_)
            bytes += keel_dtype_row_bytes(item.type, item.rows * item.columns);
        if (error || space.available >= bytes + (uint64_t{1} << 20)) return;
        throw_error(ErrorKind::resource,
                    "{}: the file needs {} of disk space, but only {} are free; free some space, "
                    "or write to another disk",
                    printable(to_.string(), 400), format_bytes(bytes),
                    format_bytes(space.available));
    }

    static std::vector<int64_t> shape(const ExportItem &item) {
        const auto rows = static_cast<int64_t>(item.rows_of_one()),
                   columns = static_cast<int64_t>(item.columns);
        if (item.is_stack) return {std::ssize(item.tensors), rows, columns};
        // The router of a shared expert has one row, which GGUF stores as a vector.
        if (item.rows == 1 && item.type == KEEL_DTYPE_F32) return {columns};
        return {static_cast<int64_t>(item.rows), static_cast<int64_t>(item.columns)};
    }

    // Returns the number of the source row that is written as row `row` of the file. Each value of
    // a vector counts as a row.
    static uint64_t source_row(const ExportItem &item, uint64_t row, uint64_t rows) {
        if (item.heads == 0) return row;
        const uint64_t n = rows / static_cast<uint64_t>(item.heads), head = row / n,
                       within = row % n;
        return head * n + within % 2 * (n / 2) + within / 2;
    }

    void read_row(const ExportItem &item, uint64_t row, float *out) const {
        if (item.tensors.empty()) {
            std::copy(item.values.begin(), item.values.end(), out);
            return;
        }
        if (item.rows > 1 || item.heads == 0) {
            source_.read(item.tensor_of(row),
                         source_row(item, row % item.rows_of_one(), item.rows) * item.columns,
                         item.columns, out);
        } else { // a vector: its values are reordered like rows
            std::vector<float> values(item.columns);
            source_.read(*item.tensors.front(), 0, item.columns, values.data());
            for (uint64_t i = 0; i < item.columns; ++i)
                out[i] = values[source_row(item, i, item.columns)];
        }
        if (item.offset == 0) return;
        for (uint64_t i = 0; i < item.columns; ++i) out[i] += item.offset;
    }

    // Returns true if type and values stay the same. Then the bytes are copied, because quantizing
    // a block again might give other bytes.
    bool is_copy(const ExportItem &item) const {
        if (item.tensors.empty() || item.offset != 0) return false;
        if (item.rows == 1 && keel_dtype_weights_only(item.type) == 0) return false;
        const auto same = [&](const TensorInfo *t) {
            return t->packed == 0 && t->dtype == item.type;
        };
        return std::all_of(item.tensors.begin(), item.tensors.end(), same);
    }

    Sums write_row(const ExportItem &item, uint64_t row, std::byte *out,
                   std::vector<float> &values) const {
        values.resize(2 * item.columns);
        float *before = values.data(), *after = before + item.columns;
        read_row(item, row, before);
        bool held = true;
        if (is_copy(item)) {
            const uint64_t bytes = keel_dtype_row_bytes(item.type, item.columns);
            const uint64_t from = source_row(item, row % item.rows_of_one(), item.rows);
            std::memcpy(out, source_.bytes(item.tensor_of(row)).data() + from * bytes, bytes);
        } else {
            held = convert_from_f32(item.type, before, out, item.columns);
        }
        convert_to_f32(item.type, out, after, item.columns);
        Sums sums;
        for (uint64_t i = 0; i < item.columns; ++i) {
            const double error = std::abs(static_cast<double>(after[i]) - before[i]);
            held = held && std::isfinite(error);
            sums.squared_error += error * error;
            sums.max_abs = std::max(sums.max_abs, error);
            sums.squares += static_cast<double>(before[i]) * before[i];
        }
        if (!held) refuse_row(item, row);
        return sums;
    }

    [[noreturn]] void refuse_row(const ExportItem &item, uint64_t row) const {
        throw_error(ErrorKind::input,
                    "{}: tensor '{}': row {} holds a value that {} cannot represent (NaN, infinity "
                    "or out of range); try bf16, or check the model with 'keel inspect --verify'",
                    source_.path(), item.name, row, keel_dtype_name(item.type));
    }

    void write(const ExportItem &item) {
        const uint64_t row_bytes = keel_dtype_row_bytes(item.type, item.columns);
        const uint64_t rows_at_once =
            std::clamp<uint64_t>(piece_bytes / (item.columns * sizeof(float)), 1, item.rows);
        std::vector<std::byte> buffer(rows_at_once * row_bytes);
        Sums sums;
        for (uint64_t row = 0; row < item.rows; row += rows_at_once) {
            const uint64_t rows = std::min(rows_at_once, item.rows - row);
            sums.add(convert(item, row, rows, buffer.data()));
            out_.write({buffer.data(), rows * row_bytes});
            advance(item, rows);
        }
        report(item, sums);
        for (const TensorInfo *tensor : item.tensors) source_.drop(*tensor);
    }

    // Converts the rows first .. first + rows - 1 of the new file to `out`. The sums are added in
    // the order of the rows, so they do not depend on the threads.
    Sums convert(const ExportItem &item, uint64_t first, uint64_t rows, std::byte *out) const {
        constexpr uint64_t task_elements = uint64_t{1} << 16;
        const uint64_t row_bytes = keel_dtype_row_bytes(item.type, item.columns);
        const uint64_t per_task = std::max<uint64_t>(1, task_elements / item.columns);
        const uint64_t tasks = (rows + per_task - 1) / per_task;
        std::vector<Sums> sums(tasks);
        std::vector<std::string> errors(tasks); // exceptions are stored as texts, because an
                                                // exception must not leave a thread of the team
        const auto body = [&](size_t task) {
            std::vector<float> values;
            try {
                for (uint64_t i = task * per_task; i < std::min(rows, (task + 1) * per_task); ++i)
                    sums[task].add(write_row(item, first + i, out + i * row_bytes, values));
            } catch (const Error &e) {
                errors[task] = e.what();
            }
        };
        if (options_.parallel) {
            options_.parallel(tasks, body);
        } else {
            for (size_t task = 0; task < tasks; ++task) body(task);
        }
        Sums all;
        for (uint64_t i = 0; i < tasks; ++i) {
            if (!errors[i].empty()) throw Error(ErrorKind::input, errors[i]);
            all.add(sums[i]);
        }
        return all;
    }

    void advance(const ExportItem &item, uint64_t rows) {
        if (item.tensors.empty()) return;
        done_ += item.stored_bytes() / item.rows * rows;
        if (options_.progress) options_.progress(std::min(done_, total_), total_);
    }

    void report(const ExportItem &item, const Sums &sums) {
        TensorError error;
        error.name = item.name;
        error.from = item.tensors.empty() ? "computed" : item.tensors.front()->dtype_name;
        error.to = find_ggml_type(stored_type(item.type))->name;
        error.elements = item.rows * item.columns;
        error.stored_bytes = item.stored_bytes();
        error.written_bytes = keel_dtype_row_bytes(item.type, error.elements);
        const auto n = static_cast<double>(error.elements);
        error.rmse = std::sqrt(sums.squared_error / n);
        error.max_abs = sums.max_abs;
        error.rms = std::sqrt(sums.squares / n);
        report_.stored_bytes += error.stored_bytes;
        report_.tensors.push_back(std::move(error));
    }

    const ModelSource &source_;
    fs::path to_;
    const ExportOptions &options_;
    bool from_gguf_;
    GgufWriter out_;
    std::vector<ExportItem> items_;
    ExportReport report_;
    uint64_t done_ = 0, total_ = 0;
};

// Returns the root mean square over all values of all tensors.
template <typename Value> double total(const std::vector<TensorError> &tensors, Value value) {
    double sum = 0, n = 0;
    for (const TensorError &t : tensors) {
        sum += value(t) * value(t) * static_cast<double>(t.elements);
        n += static_cast<double>(t.elements);
    }
    return n > 0 ? std::sqrt(sum / n) : 0;
}

} // namespace

double ExportReport::rmse() const {
    return total(tensors, [](const TensorError &t) { return t.rmse; });
}

double ExportReport::relative() const {
    const double size = total(tensors, [](const TensorError &t) { return t.rms; });
    return size > 0 ? rmse() / size : 0;
}

ExportReport export_gguf(const ModelSource &source, const fs::path &to,
                         const ExportOptions &options) {
    return Exporter(source, to, options).run();
}

} // namespace keel
