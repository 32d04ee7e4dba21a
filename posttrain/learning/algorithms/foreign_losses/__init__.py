"""How tokens enter the loss that the policy has not drawn."""
