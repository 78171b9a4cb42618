"""Search looks for a better skill on train cases.

- `loop`: the search loop; `refine`: its use for a whole skill
- `refiners`: propose candidates
- `comparison`: decides what is kept of the attempts and confirms it
- `old_arithmetic`: the tests that these decisions still use
- `failures`: what a refiner may see of failed trials; `feedback`: what people said of answers, for the teacher
- `improve`: what an older skill brings along
"""
