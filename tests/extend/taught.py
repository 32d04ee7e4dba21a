"""Whether a problem sampler finds what can be learned: 3 of 12 levels, 20 problems each."""

from my_problem_sampler import LeastDrawn

from posttrain.learning.curriculum.students import PER_LEVEL, course_of
from posttrain.learning.curriculum.uniform import Uniform

for sampler in (Uniform(), LeastDrawn()):
    course = course_of(sampler, levels=12, learnable=3)
    practiced = [problem // PER_LEVEL for drawn in course.drawn for problem in drawn]
    at_learnable = sum(level < 3 for level in practiced) / len(practiced)
    before, after = course.solve_rates[0], course.solve_rates[-1]
    print(f"{sampler.kind}: {at_learnable:.0%} can be learned, solves {before:.2f}, {after:.2f}")
