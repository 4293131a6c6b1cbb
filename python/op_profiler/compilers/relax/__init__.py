"""TVM from 0.25 on: Relax, TIR and MetaSchedule."""
