"""The names `ANY` and `DEFAULT` of quota entities, where docs/quotas.md has always had them."""

from moldau.client.admin.access import ANY as ANY
from moldau.quotas import DEFAULT as DEFAULT
