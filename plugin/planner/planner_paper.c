#include "planner_paper.h"

double planner_paper_share(double x, int n, int gpus)
{
    double k = ((double)gpus * (n - 1) - 1) * n;

    return x + x * (1 - x) / (x + k);
}

double planner_paper_threshold(int n, int gpus)
{
    double ranks = (double)n * gpus;

    return ranks / (3 * ranks - 2);
}

double planner_paper_time(double x, double y, int n, int gpus)
{
    double all = (double)n * gpus, part = (double)(n - 1) * gpus;
    double global = 2 * (all - 1) / all * (1 - y) / (1 - x);
    double partial = 2 * (part - 1) / part * y / x;

    return (global > partial ? global : partial) + y / x;
}
