"""The proof that a program resumes: it is run undisturbed, then killed and started again, and both runs are compared.

1. `processes` starts the program, kills it where it is asked to, and starts it again. `attempt` has what is known of each start: its processes, their events and lines.
   `own_output` keeps the lines of several processes apart.
2. In the program, `recording` writes down each save and restore, and what the program holds then: `evidence` walks over its variables
   and objects (`program`), and `loops` finds the iterators of its loops. After a restore it looks again at each line that the program runs (`lines`), until
   the next save, because a program may set values itself after the restore.
3. `outcome` compares what the two runs have computed: values of steps, lines of output (`output`), and the last checkpoint (`checkpoints`).
4. If they differ, `reasons` compares what the program held at a save with what it held after the restore of that checkpoint, and says which
   values were not the same.

`milepost check-resume` does this for a command, and `milepost.testing.assert_resumes` for a function.
"""
