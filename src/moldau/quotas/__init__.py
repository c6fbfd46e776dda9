"""How much users, clients and addresses may ask of a broker.

`rules` say which quota holds for whom and how long who exceeds it has to wait; `client_quotas`
keeps the accounts. What a request is charged for, and how a connection is kept waiting, is the
broker's affair.
"""
