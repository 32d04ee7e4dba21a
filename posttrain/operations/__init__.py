"""Running it every day: schedules, services, maintenance, project templates."""
