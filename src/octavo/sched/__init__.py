"""The scheduler: schedule(now) -> StepPlan, update(plan, result)."""
