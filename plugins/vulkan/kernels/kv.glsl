// A cache view: addresses of the rows of keys and values. The host cannot check the values in
// device memory, so these functions limit them. A length counts as min(max(length, 0), max_length).
// A block outside 0..blocks-1 counts as empty (address 0).

// For a batch of sequences, these functions return the sequence of a head, the head's number within
// its sequence, and the head's row in block table, lengths and positions. For one sequence they
// return 0, head and head.
uint sequence_of(Kv kv, uint head) { return kv.seat_heads == 0u ? 0u : head / kv.seat_heads; }
uint own_head(Kv kv, uint head) { return kv.seat_heads == 0u ? head : head % kv.seat_heads; }
uint book_of(Kv kv, uint head) {
    if (kv.seat_heads == 0u) return head;
    const int seat =
        clamp(InI32(kv.seats).v[kv.seats_offset + head / kv.seat_heads], 0, int(kv.seats_held) - 1);
    return uint(seat) * kv.seat_rows + head % kv.seat_heads;
}

uint kv_length(Kv kv, uint head) {
    return uint(
        clamp(InI32(kv.lengths).v[kv.lengths_offset + book_of(kv, head)], 0, int(kv.max_length)));
}

// Returns the block of a slot. The result is negative if the slot has no block.
int kv_block(Kv kv, uint head, uint slot) {
    const uint place = slot >> kv.block_shift;
    if (place >= kv.table_blocks) return -1;
    const int block =
        InI32(kv.table).v[kv.table_offset + book_of(kv, head) * kv.table_stride + place];
    return block < int(kv.blocks) ? block : -1;
}

uint64_t kv_row(uint64_t base, uint offset, uint block_units, uint slot_units, int block,
                uint slot_in_block) {
    return base + 2ul * (uint64_t(offset) + uint64_t(uint(block)) * uint64_t(block_units) +
                         uint64_t(slot_in_block) * uint64_t(slot_units));
}
uint64_t k_row(Kv kv, uint head, uint slot) {
    const int block = kv_block(kv, head, slot);
    if (block < 0) return 0ul;
    return kv_row(kv.k, kv.k_offset, kv.k_block, kv.k_slot, block,
                  slot & ((1u << kv.block_shift) - 1u));
}
uint64_t v_row(Kv kv, uint head, uint slot) {
    const int block = kv_block(kv, head, slot);
    if (block < 0) return 0ul;
    return kv_row(kv.v, kv.v_offset, kv.v_block, kv.v_slot, block,
                  slot & ((1u << kv.block_shift) - 1u));
}

// Returns the address of a slot's position.
uint64_t position_at(Kv kv, uint head, uint slot) {
    return at4(kv.positions, kv.positions_offset + book_of(kv, head) * kv.positions_stride + slot);
}

// Returns the position of token i and KV head h from the op's argument `positions`.
int given_position(uint64_t positions, Positions at, uint i, uint h) {
    return InI32(at4(positions, at.offset + i * at.token_stride + h * at.head_stride)).v[0];
}
