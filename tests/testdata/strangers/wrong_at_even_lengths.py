"""Wrong: an even number of steps is taken for a padded odd one, so that the final state is that before the last step."""

from _scan import Scan


class WrongAtEvenLengths(Scan):
    def states(self, S, *per_step):
        states = super().states(S, *per_step)
        T = len(states) - 1
        return [*states[:-1], states[-2]] if T % 2 == 0 else states


scan = WrongAtEvenLengths().function()
