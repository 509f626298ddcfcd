// The op rope. Each workgroup handles one head of one token.
#version 460
#define PARAMS RopeParams
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "kv.glsl"
#include "head.glsl"

void main() {
    for (uint i = gl_WorkGroupID.y; i < P.m; i += gl_NumWorkGroups.y) {
        for (uint h = gl_WorkGroupID.x; h < P.heads; h += gl_NumWorkGroups.x) {
            load_head(kF32, at_row(P.x, P.x_at, i, h), P.dim);
            rotate_head(
                P.rope,
                rope_row(P.rope, given_position(P.positions, P.positions_at, i, h / P.group)),
                P.sign);
            store_head_f32(at_row(P.to, P.out_at, i, h), P.dim);
        }
    }
}
