// The GPU's own attention kernels run on a processor, and compared with attention as the textbook has it, in double.
// QK and DV are set when it is compiled. Prints the largest error of each result against its largest element.
#include "lanes.hpp"
#include ATTENTION

typedef std::vector<double> Numbers;

static std::vector<bf16> random_bf16(size_t count) {
    static u64 state = 1;
    std::vector<bf16> numbers(count);
    for (bf16& number : numbers) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        number = narrow((float)(state >> 40) / (1 << 23) - 1.0f);
    }
    return numbers;
}

static double error(const char* what, const std::vector<bf16>& found, const Numbers& truth) {
    double most = 0, off = 0;
    for (size_t i = 0; i < truth.size(); i++) {
        const double distance = fabs(wide(found[i]) - truth[i]);
        most = fmax(most, fabs(truth[i]));
        off = distance <= off ? off : std::isnan(distance) ? INFINITY : distance;
    }
    printf("%s %.5f ", what, off / most);
    return off / most;
}

static bool good = true;

static void run(u32 sequences, u32 shares, u32 group, u32 queries, u32 keys, u32 causal, u32 window) {
    const u32 heads = sequences * shares * group;
    const float scale = 1.0f / sqrtf(QK);
    const auto q = random_bf16((size_t)heads * queries * QK), k = random_bf16((size_t)heads / group * keys * QK);
    const auto v = random_bf16((size_t)heads / group * keys * DV), d_o = random_bf16((size_t)heads * queries * DV);
    std::vector<bf16> o(d_o.size()), dq(q.size()), dk(k.size()), dv(v.size());
    std::vector<float> lse(heads * queries), delta(lse.size()), sum(q.size());
    launch((queries + 63) / 64, heads, [&] {
        attention_forward_kernel(q.data(), k.data(), v.data(), o.data(), lse.data(), group, queries, keys, causal, window, scale);
    });
    launch((heads * queries + 3) / 4, 1,
           [&] { attention_delta_kernel(o.data(), d_o.data(), delta.data(), (u64)heads * queries); });
    launch((keys + 63) / 64, heads / group, [&] {
        attention_backward_kernel(q.data(), k.data(), v.data(), d_o.data(), lse.data(), delta.data(), sum.data(), dk.data(),
                                  dv.data(), group, queries, keys, causal, window, scale);
    });
    launch((u32)((q.size() / 4 + 127) / 128), 1,
           [&] { attention_narrow_kernel(sum.data(), dq.data(), q.size(), scale); });

    Numbers to(o.size()), tdq(q.size()), tdk(k.size()), tdv(v.size());
    for (u32 head = 0; head < heads; head++)
        for (u32 i = 0; i < queries; i++) {
            const size_t at = (size_t)head * queries + i, share = (size_t)(head / group) * keys;
            const u32 end = causal ? (u32)((u64)(i + 1) * keys / queries) : keys, start = window && end > window ? end - window : 0;
            Numbers p(keys, 0.0);
            double all = 0, along = 0;
            for (u32 j = start; j < end; j++) {
                double score = 0;
                for (int d = 0; d < QK; d++) score += (double)wide(q[at * QK + d]) * wide(k[(share + j) * QK + d]);
                all += p[j] = exp(score * scale);
            }
            Numbers dp(keys, 0.0);
            for (u32 j = start; j < end; j++) {
                p[j] /= all;
                for (int d = 0; d < DV; d++) {
                    const double value = wide(v[(share + j) * DV + d]), gradient = wide(d_o[at * DV + d]);
                    to[at * DV + d] += p[j] * value;
                    dp[j] += value * gradient;
                    tdv[(share + j) * DV + d] += p[j] * gradient;
                }
                along += p[j] * dp[j];
            }
            for (u32 j = start; j < end; j++)
                for (int d = 0; d < QK; d++) {
                    const double slope = p[j] * (dp[j] - along) * scale;
                    tdq[at * QK + d] += slope * wide(k[(share + j) * QK + d]);
                    tdk[(share + j) * QK + d] += slope * wide(q[at * QK + d]);
                }
        }
    printf("heads %u/%u queries %u keys %u causal %u window %u: ", heads, heads / group, queries, keys, causal, window);
    const double worst = fmax(fmax(error("o", o, to), error("dq", dq, tdq)), fmax(error("dk", dk, tdk), error("dv", dv, tdv)));
    printf("\n");
    // Scores and slopes are rounded to bf16 (2^-9) before they are multiplied, and so are results.
    good = good && worst < 0.01;
}

int main() {
    run(1, 1, 1, 64, 64, 0, 0);
    run(1, 2, 1, 128, 128, 1, 0);
    run(2, 2, 4, 100, 100, 1, 0); // ragged, four query heads to a head of keys
    run(1, 1, 3, 150, 150, 1, 40); // a window, one head of keys
    run(1, 1, 1, 70, 210, 1, 0); // a rank's share of the queries
    run(1, 1, 1, 33, 130, 0, 0); // ragged, all keys
    return good ? 0 : 1;
}
