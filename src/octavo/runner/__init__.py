"""The tensor plane: executes StepPlans."""
