// Action kernel: one thread looks up what the action of one token does at the state of one row, and follows it against the stack.
//
// Body of a kernel function; the signature is made from the names and types of the buffers. Grid: x tokens, y rows. Every thread writes
// one byte of its own, there are no barriers and no atomics. A state vector that is out of range allows nothing.

const int ENDED = -1;
const int FREE = -3;
const int CAPACITY = 64;
const int WIDTH = 66;
const int MOVE = 1;
const int POPPED = 2;

const uint token = thread_position_in_grid.x;
const uint row = thread_position_in_grid.y;
const uint tokens = uint(sizes[0]);
if (token >= tokens) {
    return;
}
const int states = sizes[1];
const int sites = sizes[2];
const int landed = sizes[4];
const uint base = row * uint(WIDTH);
const int q = state[base];
int kept = state[base + 1];
const bool sound = q >= 0 && q < states && kept >= 0 && kept <= CAPACITY;
bool allowed = q == FREE;

if (stops[token] != 0) {
    const bool may_end = q == ENDED || (sound && kept == 0 && accepting[sound ? q : 0] != 0);
    allowed = allowed || may_end;
} else if (sound) {
    const int action = int(token_action[uint(state_grammar[q]) * tokens + token]);
    const int pattern = state_pattern[q];
    const int past = pattern_offsets[pattern + 1];
    int low = pattern_offsets[pattern];
    int high = past;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (pattern_actions[middle] < action) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int value = -1;
    if (low < past && pattern_actions[low] == action) {
        value = pattern_base[low] + pattern_follows[low] * q;
    }
    // a value from `states` on is a record; each turn pops a call site, so that there are at most CAPACITY + 1
    bool ended = false;
    while (value >= states && record_kind[value - states] != MOVE) {
        const int record = value - states;
        if (kept == 0) {
            ended = record_kind[record] == POPPED && record_head[record] == 0;
            value = -1;
        } else {
            kept -= 1;
            const int site = state[base + 2u + uint(kept)];
            const bool known = site >= 0 && site < sites;
            const int place = known ? record_leave[record] + site : -1;
            value = place >= 0 && place < landed ? landings[place] : -1;
        }
    }
    int pushed = 0;
    if (value >= states) {
        pushed = record_push_offsets[value - states + 1] - record_push_offsets[value - states];
    }
    allowed = allowed || ended || (value >= 0 && kept + pushed <= CAPACITY);
}
mask[row * tokens + token] = allowed;
