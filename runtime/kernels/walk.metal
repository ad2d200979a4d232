// Walk kernel (Theorem 18, here with the stack): one thread reads the bytes of one token through the machine of one row.
//
// Body of a kernel function; the signature is made from the names and types of the buffers. Grid: x tokens, y rows. Every thread writes
// one byte of its own, there are no barriers and no atomics. The row's stack is read in place: `kept` of its call sites are still there,
// and what the token pushed lies on them in `overlay`, private to the thread. A state vector that is out of range allows nothing.

const int ENDED = -1;
const int FREE = -3;
const int CAPACITY = 64;
const int WIDTH = 66;

const uint token = thread_position_in_grid.x;
const uint row = thread_position_in_grid.y;
const uint tokens = uint(sizes[0]);
if (token >= tokens) {
    return;
}
const int states = sizes[1];
const int sites = sizes[2];
const int exits = sizes[3];
const uint base = row * uint(WIDTH);
int q = state[base];
int kept = state[base + 1];
const bool sound = q >= 0 && q < states && kept >= 0 && kept <= CAPACITY;
bool allowed = q == FREE;

int at = token_offsets[token];
const int last = token_offsets[token + 1];
if (at == last) {
    // a token that spells nothing: allowed if it is a stop token and the output may end
    const bool may_end = q == ENDED || (sound && kept == 0 && accepting[sound ? q : 0] != 0);
    allowed = allowed || (may_end && stops[token] != 0);
} else if (sound) {
    int overlay[OVERLAY];
    int opened = 0;
    int leaving = -1;  // the exit through which the rule in hand is being left
    bool alive = true;
    while (alive && (at < last || leaving >= 0)) {
        if (leaving >= 0) {
            if (opened + kept == 0) {
                // the text ends: allowed if the token ends with it
                allowed = at == last && leaving == 0;
                alive = false;
            } else {
                int site;
                if (opened > 0) {
                    opened -= 1;
                    site = overlay[opened];
                } else {
                    kept -= 1;
                    site = state[base + 2u + uint(kept)];
                }
                alive = site >= 0 && site < sites && leaving < exits;
                q = alive ? returns[site * exits + leaving] : -1;
                alive = q >= 0;
                leaving = -1;
            }
            continue;
        }
        const int grammar = state_grammar[q];
        const int cell = int(table[state_row[q] + int(byte_class[grammar * 256 + int(token_bytes[at])])]);
        if (cell < 0) {
            // refused: the byte is read again after a lazy return, if there is one
            leaving = lazy_exit[q];
            alive = leaving >= 0;
            continue;
        }
        at += 1;
        if (cell < grammar_states[grammar]) {
            q = grammar_base[grammar] + cell;
        } else {
            const int edge = grammar_edges[grammar] + cell - grammar_states[grammar];
            const int high = edge_push_offsets[edge + 1];
            for (int place = edge_push_offsets[edge]; place < high && alive; ++place) {
                if (opened < OVERLAY) {
                    overlay[opened] = edge_pushes[place];
                    opened += 1;
                } else {
                    alive = false;
                }
            }
            q = edge_target[edge];
        }
        leaving = eager_exit[q];
    }
    allowed = allowed || (alive && opened + kept <= CAPACITY);
}
mask[row * tokens + token] = allowed;
