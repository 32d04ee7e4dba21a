"""Parameters of the stage: those of the objective and the rounds that it runs."""

from posttrain.learning.preference.config import PreferenceConfig as PreferenceConfig
